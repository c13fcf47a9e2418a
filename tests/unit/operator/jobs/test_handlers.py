"""Deleted jobs that cannot be parsed are released, and jobs that are never accepted get no finalizer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import kopf
import pytest
from operator_builders import job_manifest, moment

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import CLAIMS, EVENTS, JOBS, Resource
from podium_operator.jobs.finalizers import FINALIZER
from podium_operator.jobs.handlers import _accept, release_unreadable

CHECKPOINT = {"path": "/c", "volume": {"claimName": "runs"}}


class Server:
    """Records what is written. `modes`: of the claim (None: it does not exist); `fails`: how the first calls end."""

    def __init__(self, modes: Sequence[str] | None = ("ReadWriteMany",), fails: Sequence[ApiError] = ()) -> None:
        self.done: list[str] = []
        self._modes = modes
        self._fails = list(fails)

    async def get(self, resource: Resource, *_: Any) -> dict[str, Any]:
        assert resource is CLAIMS
        if self._modes is None:
            raise ApiError(404, "NotFound", "runs")
        return {"spec": {"accessModes": list(self._modes)}}

    async def apply(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        assert resource is JOBS
        if self._fails:
            raise self._fails.pop(0)
        self.done.append(f"finalizers {body['metadata']['finalizers']}")

    async def apply_status(self, _: Resource, body: Mapping[str, Any], **__: Any) -> None:
        (condition,) = body["status"]["conditions"]
        self.done.append(f"Accepted {condition['status']}")

    async def create(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        assert resource is EVENTS
        self.done.append(f"{body['reason']}: {body['message']}")


def manifest(*finalizers: str, deleted: bool = True, **spec: Any) -> dict[str, Any]:
    job = job_manifest(**{"checkpoint": CHECKPOINT, **spec})
    job["metadata"] |= {"uid": "uid-sweep", "finalizers": list(finalizers)}
    if deleted:
        job["metadata"]["deletionTimestamp"] = moment()
    return job


INVALID = {"suspension": {"methods": ["of an older version"]}}
UNREACHABLE = ApiError(0, "Timeout", "away")


def release(server: Server, job: Mapping[str, Any]) -> Sequence[str]:
    asyncio.run(release_unreadable(cast(Api, server), job, pause=0))
    return server.done


def test_the_job_is_released_and_an_event_names_the_folder() -> None:
    released, event = release(Server(fails=[UNREACHABLE, UNREACHABLE]), manifest(FINALIZER, **INVALID))
    assert released == "finalizers []"
    assert event.startswith("CheckpointsNotRemoved: Folder lab-sweep-uid-swee of the checkpoint volume was not removed")
    assert "spec.suspension.methods" in event


def test_orphaned_trials_keep_the_folder() -> None:
    assert release(Server(), manifest(FINALIZER, "orphan", **INVALID)) == ["finalizers []"]


@pytest.mark.parametrize(
    "job",
    [manifest(FINALIZER), manifest(FINALIZER, deleted=False, **INVALID), manifest("another", **INVALID)],
    ids=["it can be parsed", "not deleted", "without Podium's finalizer"],
)
def test_other_jobs_are_not_touched(job: dict[str, Any]) -> None:
    assert release(Server(), job) == []


def test_a_deleted_job_needs_nothing() -> None:
    assert release(Server(fails=[ApiError(404, "NotFound", "sweep")]), manifest(FINALIZER, **INVALID)) == []


def accept(server: Server, job: Mapping[str, Any]) -> Sequence[str]:
    asyncio.run(_accept(cast(Api, server), dict(job), removes_folders=True, reserved_gpus=False))
    return server.done


def test_a_job_gets_its_finalizer_before_it_is_accepted() -> None:
    assert accept(Server(), manifest(deleted=False)) == [f"finalizers ['{FINALIZER}']", "Accepted True"]


def test_a_job_that_is_not_accepted_gets_no_finalizer() -> None:
    refused, event = accept(Server(["ReadWriteOnce"]), manifest(deleted=False))
    assert refused == "Accepted False"
    assert event.startswith("VolumeNotShared")
    waits = Server(None)
    with pytest.raises(kopf.TemporaryError, match="runs"):
        accept(waits, manifest(deleted=False))
    assert waits.done == ["Accepted Unknown"]
