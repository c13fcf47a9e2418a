"""Whether a run queue preempts the holder: as it is written, and as it is read again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import make_cluster_state, make_job, make_node, make_pod, make_trial

from podium_cluster.client import Api
from podium_cluster.resources import Resource
from podium_core.domain.actions import TrialRank, WriteRunQueues
from podium_core.domain.keys import TrialKey
from podium_core.schema.gpunode import GPUNode
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import PodRules
from podium_operator.metrics import Metrics
from podium_operator.observe.observation import observe
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.settings import OperatorSettings


class Server:
    """Keeps what is applied."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    async def apply(self, _: Resource, body: Mapping[str, Any], **__: Any) -> dict[str, Any]:
        self.written.append(dict(body))
        return {}


def test_only_a_run_queue_that_preempts_has_the_field() -> None:
    """Other GPUs omit the field: a reader of an older version does not know it."""
    server = Server()
    api = cast(Api, server)
    caches = WatchCaches(api, OperatorSettings())
    actuator = Actuator(api, caches, PodRules("podium", "podium.dev/gpu"), Metrics())
    place = TrialRank(TrialKey("lab", "a", "u"), 1, "Envelope", "goes first.")
    winner = replace(place, gain=0.25)
    order = WriteRunQueues("node-1", 2, (("gpu-0", (place,)), ("gpu-1", (winner,))), ("gpu-1",))
    cluster = make_cluster_state(make_node(epoch=1))
    asyncio.run(actuator.write_run_queues(cluster, (order,)))
    (body,) = server.written
    (first,), (second,) = (gpu["runQueue"] for gpu in body["spec"]["gpus"])
    assert (first.get("preempts"), second.get("preempts")) == (None, True)
    assert (first.get("gain"), second.get("gain")) == (None, 0.25)
    assert "preempts" not in first
    assert "gain" not in first
    read = GPUNode.model_validate(body)
    assert [gpu.preempts for gpu in read.spec.gpus] == [None, True]


@pytest.mark.parametrize(
    ("preempts", "observed", "no_preemption"),
    [(None, 2, True), (True, 2, False), (None, 1, False)],  # the last one has not reached the agent yet
)
def test_a_run_queue_preempts_nothing_once_its_agent_has_it(
    preempts: bool | None, observed: int, no_preemption: bool
) -> None:
    node = make_node(trials={"sweep-0": "Running"}, holder="sweep-0", order=("sweep-0",), epoch=2)
    (gpu,) = node.spec.gpus
    entry = gpu.run_queue[0].model_copy(update={"preempts": preempts})
    spec = node.spec.model_copy(update={"gpus": [gpu.model_copy(update={"run_queue": [entry]})]})
    status = node.status.model_copy(update={"observed_epoch": observed})
    cluster = make_cluster_state(
        make_job(), make_trial(0), make_pod(), node.model_copy(update={"spec": spec, "status": status})
    )
    (seen,) = build_snapshot(cluster, observe(cluster)).gpus
    assert seen.run_queue.no_preemption is no_preemption


def test_fields_of_a_newer_operator_are_ignored() -> None:
    raw = {
        "metadata": {"name": "n"},
        "spec": {"epoch": 1, "gpus": [{"uuid": "g", "runQueue": [], "later": 1}], "new": {}},
    }
    assert GPUNode.model_validate(raw).spec.gpus[0].uuid == "g"
