"""A trial that was to be requeued and whose pod the API server keeps: it is told as what it is, one that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from operator_builders import ended, make_job, make_node, make_pod, make_trial, make_world

import podium_operator.cycle
from podium.domain.actions import Place, Places, Plan, Requeue
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import TRIALS, Resource
from podium_operator.actuator import Actuator
from podium_operator.cleanup import Cleanup
from podium_operator.cycle import Cycle
from podium_operator.last_words import LastWords
from podium_operator.leasing import Leasing
from podium_operator.leveller import Leveller
from podium_operator.metrics import Metrics
from podium_operator.mirror import Mirror
from podium_operator.pods import PodRules
from podium_operator.settings import OperatorSettings
from podium_operator.statuses import Statuses
from podium_operator.world import trial_key


@pytest.mark.parametrize(("refused", "told"), [(False, "NodeDraining"), (True, "PodKept")])
def test_a_pod_that_stays_is_not_said_to_go(monkeypatch: pytest.MonkeyPatch, refused: bool, told: str) -> None:
    """Stored, that reason would make the pod's end, whoever ends it some day, one of Podium's own."""
    reasons: list[str] = []

    class Server:
        async def _take(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {}

        apply = create = patch = _take

        async def delete(self, *_: Any, **__: Any) -> None:
            if refused:
                raise ApiError(403, "Forbidden", "a webhook keeps it")

        async def apply_status(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> dict[str, Any]:
            if resource is TRIALS:
                reasons.append(body["status"]["reason"])
                assert ("a webhook keeps it" in body["status"]["message"]) is refused
            return {}

    trial = make_trial(phase="Running")
    pod = make_pod(phase="Running", gate=ended(0), main={"running": {}})
    metrics, settings, api = Metrics(), OperatorSettings(), cast(Api, Server())
    mirror, key = Mirror(api, settings), trial_key(trial)
    monkeypatch.setattr(mirror, "world", lambda: make_world(make_job(), trial, pod, make_node()))
    go, stand = Requeue(key, "NodeDraining", "The node drains."), Place(key, 1, "KeepsGpu", "It keeps its GPU.")
    monkeypatch.setattr(podium_operator.cycle, "plan", lambda _: Plan((go,), Places(lambda: iter((stand,))), None))
    actuator = Actuator(api, mirror, PodRules("podium", "podium.dev/gpu"), metrics)
    statuses, leasing = Statuses(api, 2.0, metrics), Leasing(api, settings, metrics)
    cleanup, leveller = Cleanup(api, mirror.world, None), Leveller(api, settings)
    cycle = Cycle(settings, mirror, actuator, statuses, LastWords(api), cleanup, metrics, leasing, leveller)
    asyncio.run(cycle.once())
    assert reasons == [told]
