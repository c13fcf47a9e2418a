"""What the watch caches remember: run queues that the cache does not show yet, and when a pod's end was observed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from model_api import Server
from model_operator import Clock, ModelWatchCaches
from operator_builders import NOW, ended, make_node, make_pod, make_trial, moment, pod_payload

import podium_cluster.clock
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES, PODS
from podium_core.domain.actions import WriteRunQueues
from podium_core.schema.gpunode import GpuNodeSpec, GpuRunQueue
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import PodRules
from podium_operator.metrics import Metrics
from podium_operator.observe import watch_caches as watch_caches_module
from podium_operator.observe.cluster_state import trial_key
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.settings import OperatorSettings


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1000.0)
    monkeypatch.setattr(watch_caches_module, "time", clock)
    monkeypatch.setattr(podium_cluster.clock, "now", clock.time)
    return clock


def ordered(clock: Clock) -> tuple[Server, ModelWatchCaches]:
    """Return caches whose operator has written epoch 5, while the cache shows epoch 4."""
    server = Server(clock.time)
    server.put(GPUNODES, {"metadata": {"name": "node-0", "uid": "u"}, "spec": {"epoch": 4}, "status": {}})
    caches = ModelWatchCaches(server, ())
    caches.remember_written("node-0", GpuNodeSpec(epoch=5, gpus=[GpuRunQueue(uuid="GPU-0")]))
    return server, caches


def test_a_run_queue_that_was_just_written_is_in_force(clock: Clock) -> None:
    _, caches = ordered(clock)
    (node,) = caches.cluster_state().nodes
    assert (node.spec.epoch, [gpu.uuid for gpu in node.spec.gpus]) == (5, ["GPU-0"])


@pytest.mark.parametrize(("hears", "silent"), [(True, True), (False, False)])
def test_an_agent_is_not_silent_while_the_operator_hears_nothing(clock: Clock, hears: bool, silent: bool) -> None:
    server = Server(clock.time)
    server.put(GPUNODES, {"metadata": {"name": "node-0", "uid": "u"}, "spec": {}, "status": {}})
    caches = WatchCaches(cast(Api, server), OperatorSettings(namespace="podium-system"))
    heard = clock.now
    lease = SimpleNamespace(spec=SimpleNamespace(renew_time=moment(NOW)))
    current_at = lambda: clock.now if hears else heard  # noqa: E731
    caches._heartbeats = cast(Any, SimpleNamespace(get=lambda *_: lease, current_at=current_at))
    clock.now = heard
    caches._last_heartbeats["node-0"] = (lease.spec.renew_time, heard)
    clock.now += 3600.0
    assert caches._is_unresponsive("node-0") is silent


def test_a_stale_cache_is_trusted_but_no_epoch_is_used_twice(clock: Clock) -> None:
    """Two failures that the model found: two run queues with one epoch, and an epoch that the server refuses."""
    _, caches = ordered(clock)
    clock.now += 60.0
    (node,) = caches.cluster_state().nodes
    assert (node.spec.epoch, node.spec.gpus) == (5, [])


@pytest.mark.parametrize(("status", "next_epoch"), [(0, 6), (504, 6), (422, 5)], ids=["timeout", "gateway", "refused"])
def test_an_unconfirmed_run_queue_does_not_share_its_epoch(clock: Clock, status: int, next_epoch: int) -> None:
    """It may be written, or arrive after the next one: what is in force is what the cache shows."""

    class Mute:
        async def apply(self, *_: Any, **__: Any) -> None:
            raise ApiError(status, "Timeout", "no answer")

    server = Server(clock.time)
    gpus = [{"uuid": "GPU-0", "runQueue": []}]
    server.put(GPUNODES, {"metadata": {"name": "node-0", "uid": "u"}, "spec": {"epoch": 4, "gpus": gpus}, "status": {}})
    caches = ModelWatchCaches(server, ())
    actuator = Actuator(cast(Api, Mute()), caches, PodRules("podium", "podium.dev/gpu"), Metrics())
    seen = caches.cluster_state()
    asyncio.run(actuator.write_run_queues_only(seen, [WriteRunQueues("node-0", 5, (("GPU-1", ()),))]))
    snapshot = build_snapshot(caches.cluster_state(), {})
    assert snapshot.epochs["node-0"] + 1 == next_epoch
    assert [gpu.uuid for node in caches.cluster_state().nodes for gpu in node.spec.gpus] == ["GPU-0"]


def test_fields_that_a_person_sets_meanwhile_are_kept(clock: Clock) -> None:
    server, caches = ordered(clock)
    drains = {"metadata": {"name": "node-0"}, "spec": {"draining": True}}
    asyncio.run(server.apply(GPUNODES, drains, manager="podium-cli-drain"))
    caches.views[3].receive()
    (node,) = caches.cluster_state().nodes
    assert (node.spec.epoch, node.spec.draining) == (5, True)


@pytest.mark.parametrize(("uid", "epoch"), [("u", 5), ("u", 6), ("second", 0)])
def test_a_written_run_queue_is_forgotten_once_the_cache_or_a_new_object_replaces_it(
    clock: Clock, uid: str, epoch: int
) -> None:
    server, caches = ordered(clock)
    server.put(GPUNODES, {"metadata": {"name": "node-0", "uid": uid}, "spec": {"epoch": epoch}, "status": {}})
    caches.views[3].receive()
    assert [node.spec.epoch for node in caches.cluster_state().nodes] == [epoch]


def test_the_end_of_a_pod_counts_from_its_first_observation(clock: Clock) -> None:
    server = Server(clock.time)
    caches = ModelWatchCaches(server, ())
    for name, main in (("over", ended(0, after=-600)), ("works", {"running": {}})):
        payload = pod_payload(main=main)
        payload["metadata"] |= {"name": name, "uid": name}
        server.put(PODS, payload)
    caches.views[2].receive()
    assert caches.cluster_state().end_observed_at == {"over": 1000.0}
    clock.now += 5.0
    assert caches.cluster_state().end_observed_at == {"over": 1000.0}


def report(server: Server, since: float, written: float, trial: str = "sweep-0") -> None:
    """Write the agent's report of its GPU's holder, by the agent's clock."""
    node = make_node(holder=trial).model_dump(mode="json", by_alias=True)
    holder = node["status"]["gpus"][0]["holder"] | {"since": moment(since - NOW)}
    gpu = node["status"]["gpus"][0] | {"holder": holder}
    server.put(GPUNODES, node | {"status": {"gpus": [gpu], "updatedAt": moment(written - NOW)}})


def began(caches: ModelWatchCaches) -> float | None:
    caches.views[3].receive()
    (gpu,) = build_snapshot(caches.cluster_state(), {}).gpus
    return gpu.holder_since


@pytest.mark.parametrize("skew", [0, -5, -300, 60, 300])
def test_the_length_of_a_time_slice_does_not_depend_on_the_nodes_clock(clock: Clock, skew: float) -> None:
    server = Server(clock.time)
    caches = ModelWatchCaches(server, ())
    report(server, since=1000.0 + skew, written=1000.0 + skew)
    assert began(caches) == 1000.0
    clock.now = 1020.0  # without news
    assert began(caches) == 1000.0
    report(server, since=1000.0 + skew, written=1016.0 + skew)  # a late report
    assert began(caches) == 1000.0
    clock.now = 1030.0  # another operator, which reads a report of 14 s ago
    second = ModelWatchCaches(server, ())
    assert began(second) == 1014.0
    report(server, since=1000.0 + skew, written=1030.0 + skew)
    assert began(second) == 1000.0
    clock.now = 1041.0
    report(server, since=1040.0 + skew, written=1041.0 + skew, trial="sweep-1")
    assert (began(caches), began(second)) == (1040.0, 1040.0)
    report(server, since=1041.0 + skew, written=1041.0 + skew, trial="sweep-1")  # the same trial again
    assert (began(caches), began(second)) == (1041.0, 1041.0)


def test_a_deleted_pod_is_remembered_while_its_trial_exists() -> None:
    """The watch reports each version of an object, whether a reconcile reads it or not."""
    caches = WatchCaches(cast(Api, None), OperatorSettings())
    trial = make_trial()
    caches._trials._items[trial.metadata.namespace, trial.metadata.name] = trial
    first, second = make_pod(), make_pod(attempt=1)
    for before, after in ((None, first), (first, make_pod(phase="Running")), (None, second)):
        caches._pods._notify(("lab", "sweep-0-0"), before, after)
    assert caches.cluster_state().deleted_pods == {}
    for one in (second, first):  # the later pod is reported first
        caches._pods._notify(("lab", one.name), one, None)
    assert caches.cluster_state().deleted_pods == {trial_key(trial): second}
    caches._trials._items.clear()
    assert caches.cluster_state().deleted_pods == {}
