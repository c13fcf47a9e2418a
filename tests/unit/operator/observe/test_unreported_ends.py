"""Ends of attempts that no status has reported: counted, and recorded as Events, once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import ended, make_cluster_state, make_job, make_pod, make_trial

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState, trial_key
from podium_operator.observe.observation import Observation, observe, unreported_ends
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.report.status_writer import Report, StatusWriter

FAILED = {"phase": "Failed", "gate": ended(0), "main": ended(1, after=-1)}
TAKEN = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
CHECKPOINTED = {"phase": "Succeeded", "main": ended(0), "deleting": True, "conditions": TAKEN}
TERMINATING = {"phase": "Running", "main": {"running": {}}, "deleting": True}


@pytest.mark.parametrize(
    ("status", "first", "failures"),
    [
        ({"phase": "Running"}, FAILED, 1),
        ({"phase": "Running", "failures": 1}, FAILED, 2),
        ({"phase": "Requeued", "failures": 1}, FAILED, 1),
        ({"phase": "Running"}, {"phase": "Failed", "reason": "Evicted"}, 0),
    ],
    ids=["not stored", "nor this one", "written down", "the cluster's doing"],
)
def test_a_failure_that_was_not_stored_before_the_next_pod_counts(
    status: dict[str, Any], first: dict[str, Any], failures: int
) -> None:
    """The status was changed by another client in the reconcile that created the pod, or the operator ended then."""
    trial = make_trial(**status, pod="sweep-0-0")
    cluster = make_cluster_state(make_job(), trial, make_pod(**first), make_pod(attempt=1))
    observation = observe(cluster)[trial_key(trial)]
    assert (observation.attempts.number, observation.attempts.failures) == (1, failures)


def after(
    status: dict[str, Any], first: dict[str, Any] | None, *, deleted: bool, **second: Any
) -> tuple[ClusterState, Observation]:
    """Return the state with a pod of attempt 1 beside a stored `status` of attempt 0, whose pod is `first`."""
    trial = make_trial(**{"pod": "sweep-0-0", **status})
    old = [] if first is None else [make_pod(**first)]
    cluster = make_cluster_state(make_job(), trial, *([] if deleted else old), make_pod(attempt=1, **second))
    if deleted and old:
        cluster = replace(cluster, deleted_pods={trial_key(trial): old[0]})
    return cluster, observe(cluster)[trial_key(trial)]


CASES: list[tuple[str, dict[str, Any], dict[str, Any] | None, bool, list[tuple[str, str]]]] = [
    ("evicted", {"phase": "Running"}, CHECKPOINTED, False, [("PodDisrupted", "(EvictionByEvictionAPI), and its")]),
    ("and deleted", {"phase": "Running"}, CHECKPOINTED, True, [("PodDisrupted", "(EvictionByEvictionAPI), and its")]),
    ("gone before it ended", {"phase": "Running"}, {**TERMINATING, "conditions": TAKEN}, True,
     [("PodDisrupted", "(EvictionByEvictionAPI); a new pod")]),
    ("deleted", {"phase": "Running"}, TERMINATING, True, [("PodDeleted", "was deleted")]),
    ("Podium's doing", {"phase": "Running", "reason": "Preempted"}, TERMINATING, True, [("Preempted", "was deleted")]),
    ("unknown", {"phase": "Suspended"}, None, True, [("PodDeleted", "was deleted")]),
    ("failed", {"phase": "Running"}, FAILED, True, [("ProcessFailed", "exit code 1")]),
    ("recorded", {"phase": "Requeued"}, CHECKPOINTED, False, []),
    ("over", {"phase": "Succeeded"}, CHECKPOINTED, False, []),
    ("still there", {"phase": "Running"}, TERMINATING, False, []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "first", "deleted", "recorded"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_end_of_an_attempt_that_no_status_reported(
    status: dict[str, Any], first: dict[str, Any] | None, deleted: bool, recorded: list[tuple[str, str]]
) -> None:
    _, observation = after(status, first, deleted=deleted)
    assert [end.reason for end in observation.attempts.unreported_ends] == [reason for reason, _ in recorded]
    assert all(
        words in end.message for end, (_, words) in zip(observation.attempts.unreported_ends, recorded, strict=True)
    )
    disruptions = sum(reason in ("PodDisrupted", "PodDeleted") for reason, _ in recorded)
    assert (observation.attempts.disruptions.consecutive if observation.attempts.disruptions else 0) == disruptions


def test_a_migrated_attempt_has_not_ended() -> None:
    cluster, _ = after({"phase": "Suspended"}, TERMINATING, deleted=True)
    (trial,) = cluster.trials
    new = make_pod(attempt=1)
    migrated = replace(cluster, pods=(replace(new, facts=replace(new.facts, migrated=True)),))
    assert unreported_ends(cluster, trial, 1)
    assert unreported_ends(migrated, trial, 1) == ()


class Wire:
    """Records the Events; the first `refusals` statuses of trials are refused because another client wrote them."""

    def __init__(self, refusals: int) -> None:
        self.recorded: list[str] = []
        self._refusals = refusals

    async def create(self, _: Resource, body: Mapping[str, Any], **__: Any) -> None:
        self.recorded.append(f"{body['reason']}: {body['message']}")

    async def apply_status(self, resource: Resource, *_: Any, **__: Any) -> None:
        if resource.kind == "HyperParamTrial" and self._refusals:
            self._refusals -= 1
            raise ApiError(409, "Conflict", "the object has been modified")


@pytest.mark.parametrize("refusals", [0, 1])
def test_an_unreported_end_is_recorded_once(refusals: int) -> None:
    wire = Wire(refusals)
    cluster, _ = after({"phase": "Running"}, CHECKPOINTED, deleted=True)
    observations, status_writer = observe(cluster), StatusWriter(cast(Api, wire), 1.0, Metrics())
    for written in range(3):
        asyncio.run(status_writer.write(cluster, observations, build_snapshot(cluster, observations), Report()))
        requeues = [said for said in wire.recorded if said.startswith("TrialRequeued: PodDisrupted: The cluster ended")]
        assert len(requeues) == (written >= refusals)
