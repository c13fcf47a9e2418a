"""What the operator sends to the API server, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from operator_builders import make_job, make_node, make_pod, make_trial, make_world

from podium.domain.actions import CreatePod, DeletePod, Order
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_operator.actuator import Actuator
from podium_operator.metrics import Metrics
from podium_operator.mirror import Mirror
from podium_operator.observed import observe
from podium_operator.pods import PodRules
from podium_operator.settings import OperatorSettings
from podium_operator.snapshot import build_snapshot
from podium_operator.statuses import Statuses
from podium_operator.world import trial_key


class Wire:
    """Stands where the API server would: it notes what comes, and refuses with `refusal`."""

    def __init__(self, refusal: ApiError | None = None) -> None:
        self.calls: list[tuple[str, str, Mapping[str, Any]]] = []
        self._refusal = refusal

    async def _note(self, verb: str, resource: Resource, body: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        self.calls.append((verb, resource.kind, body))
        if self._refusal is not None:
            raise self._refusal

    async def apply(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        await self._note("apply", resource, body)

    async def apply_status(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        await self._note("status", resource, body)

    async def create(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        await self._note("create", resource, body)

    async def delete(self, resource: Resource, name: str, *_: Any, **__: Any) -> None:
        await self._note("delete", resource, {"name": name})

    def versions(self) -> dict[str, str]:
        return {kind: body["metadata"]["resourceVersion"] for verb, kind, body in self.calls if verb == "status"}


ANOTHER = ApiError(409, "Conflict", "the object has been modified; please apply your changes to the latest version")


@pytest.mark.parametrize("refusal", [None, ANOTHER], ids=["written", "another object of that name"])
def test_a_status_is_for_this_very_object(refusal: ApiError | None, caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(refusal)
    job, trial = (
        item.model_copy(update={"metadata": item.metadata.model_copy(update={"resource_version": version})})
        for item, version in ((make_job(), "7"), (make_trial(), "8"))
    )
    world = make_world(job, trial)
    sights = observe(world)
    statuses = Statuses(cast(Api, wire), 1.0, Metrics())
    asyncio.run(statuses.write(world, sights, build_snapshot(world, sights), {}, {}, {}))
    assert wire.versions() == {"HyperParamTrial": "8", "HyperParamJob": "7"}
    assert not [record for record in caplog.records if record.levelname == "WARNING"], "the next cycle looks again"


def test_a_pod_is_deleted_before_an_order_leaves_it_out_and_the_new_come_last() -> None:
    """Else the agent would freeze what it has to thaw at once for its SIGTERM."""
    wire = Wire()
    api = cast(Api, wire)
    going, coming = make_trial(0, phase="Running"), make_trial(1)
    world = make_world(make_job(), going, coming, make_pod(), make_node())
    actions = [
        CreatePod(trial_key(coming), 0, "ShareFree", "room"),
        Order("node-1", 2, (("GPU-1", ()),)),
        DeletePod(trial_key(going), "StoppedByUser", "stopped"),
    ]
    settings = OperatorSettings()
    actuator = Actuator(api, Mirror(api, settings), PodRules("podium", "podium.dev/gpu"), Metrics())
    asyncio.run(actuator.carry_out(world, actions))
    assert [(verb, kind) for verb, kind, _ in wire.calls] == [
        ("delete", "Pod"),
        ("apply", "GPUNode"),
        ("create", "Pod"),
    ]
