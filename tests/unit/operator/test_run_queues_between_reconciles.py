"""While a reconcile creates pods and writes statuses, agents are answered with run queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import pytest
from operator_builders import UUID, make_cluster_state, make_job, make_node, make_pod, make_reconciler, make_trial

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, Resource
from podium_core.domain.actions import CreateTrial, WriteRunQueues
from podium_operator.act.actuator import PARALLEL_CALLS, Actuator
from podium_operator.act.pod_manifest import PodRules
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.settings import OperatorSettings

LIMIT = 5.0  # seconds after which a test gives up
AT_GATE = {"running": {}}


class SlowServer:
    """Accepts statuses only when it may; `ordered` is set when a run queue has arrived."""

    def __init__(self) -> None:
        self.orders: list[list[str]] = []
        self.writes = asyncio.Event()
        self.may_write = asyncio.Event()
        self.ordered = asyncio.Event()

    async def apply(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        assert resource is GPUNODES
        self.orders.append([entry["trial"] for entry in body["spec"]["gpus"][0]["runQueue"]])
        self.ordered.set()
        return {}

    async def apply_status(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.writes.set()
        await self.may_write.wait()
        return {}

    async def create(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    async def delete(self, *_: Any, **__: Any) -> None:
        raise AssertionError("only a reconcile deletes a pod")


def cluster(*gates: bool, order: tuple[str, ...] = (), epoch: int = 1, draining: bool = False) -> ClusterState:
    """Return two trials on a GPU, some of which wait at their gates."""
    trials = [make_trial(number) for number in range(len(gates))]
    pods = [make_pod(f"sweep-{i}", gate=AT_GATE if there else None) for i, there in enumerate(gates)]
    states = {f"sweep-{number}": "Gated" for number in range(len(gates))}
    node = make_node(trials=states, order=order, epoch=epoch)
    if draining:
        node = node.model_copy(update={"spec": node.spec.model_copy(update={"draining": True})})
    return make_cluster_state(make_job(trials={"max": 2, "parallel": 2, "maxSteps": 10}), *trials, *pods, node)


class Stage:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: ClusterState) -> None:
        settings, metrics = OperatorSettings(debounce_seconds=0.0), Metrics()
        self.server = SlowServer()
        api = cast(Api, self.server)
        caches = WatchCaches(api, settings)
        self.cluster = first
        self.agents_speak: Callable[[], None] = lambda: None
        monkeypatch.setattr(caches, "cluster_state", lambda: self.cluster)
        monkeypatch.setattr(caches, "subscribe_nodes", lambda listener: setattr(self, "agents_speak", listener))
        self.reconciler = make_reconciler(api, caches, settings, metrics)


def play(
    monkeypatch: pytest.MonkeyPatch, first: ClusterState, then: Callable[[Stage], Awaitable[None]]
) -> list[list[str]]:
    """Reconcile `first`, run `then` while its statuses are written, and return the run queues that were sent."""

    async def run() -> list[list[str]]:
        stage = Stage(monkeypatch, first)
        reconciler = asyncio.create_task(stage.reconciler.reconcile())
        async with asyncio.timeout(LIMIT):
            await stage.server.writes.wait()
            await then(stage)
            stage.server.may_write.set()
            await reconciler
        return stage.server.orders

    return asyncio.run(run())


def test_a_trial_that_reaches_its_gate_meanwhile_gets_a_run_queue_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def then(stage: Stage) -> None:
        stage.server.ordered.clear()
        stage.cluster = cluster(False, True, order=("sweep-0", "sweep-1"), epoch=2)
        stage.agents_speak()
        await stage.server.ordered.wait()  # no status is written yet

    assert play(monkeypatch, cluster(False, False), then) == [["sweep-0", "sweep-1"], ["sweep-1", "sweep-0"]]


def test_without_news_no_run_queue_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = asyncio.Event()

    async def then(stage: Stage) -> None:
        same = cluster(False, False, order=("sweep-0", "sweep-1"), epoch=2)
        monkeypatch.setattr(stage.reconciler, "_read_state", lambda: looked.set() or same)
        stage.agents_speak()
        await looked.wait()

    assert play(monkeypatch, cluster(False, False), then) == [["sweep-0", "sweep-1"]]


def test_if_a_pod_has_to_be_deleted_first_the_next_reconcile_writes_the_run_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run queues without a trial come after the deletion of its pod."""
    looked = asyncio.Event()

    async def then(stage: Stage) -> None:
        empties = cluster(False, True, order=("sweep-0", "sweep-1"), epoch=2, draining=True)
        monkeypatch.setattr(stage.reconciler, "_read_state", lambda: looked.set() or empties)
        stage.agents_speak()
        await looked.wait()

    assert play(monkeypatch, cluster(False, False), then) == [["sweep-0", "sweep-1"]]


def test_an_error_between_two_reconciles_ends_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = asyncio.Event()

    def fail() -> ClusterState:
        failed.set()
        raise ValueError("unreadable")

    async def then(stage: Stage) -> None:
        monkeypatch.setattr(stage.reconciler, "_read_state", fail)
        stage.agents_speak()
        await failed.wait()

    assert play(monkeypatch, cluster(False, False), then) == [["sweep-0", "sweep-1"]]


def test_run_queues_do_not_wait_for_pods_that_are_being_created() -> None:
    """A large search starts with far more pods than concurrent calls."""

    class Full(SlowServer):
        async def create(self, *_: Any, **__: Any) -> dict[str, Any]:
            self.writes.set()
            await self.may_write.wait()
            return {}

    async def run() -> None:
        server = Full()
        api, seen = cast(Api, server), cluster(False, True)
        actuator = Actuator(api, WatchCaches(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
        (job,) = seen.job_by_key
        many = [CreateTrial(job, number, "Free", "") for number in range(2 * PARALLEL_CALLS)]
        making = asyncio.create_task(actuator.create(seen, many))
        async with asyncio.timeout(LIMIT):
            await server.writes.wait()
            await actuator.write_run_queues_only(seen, [WriteRunQueues("node-1", 2, ((UUID, ()),))])
            assert (server.orders, making.done()) == ([[]], False)
            server.may_write.set()
            await making

    asyncio.run(run())


def test_a_stopping_operator_does_not_wait_for_a_run_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server may be unreachable: the operator would be killed before it stops."""

    async def run() -> bool:
        stage = Stage(monkeypatch, cluster(False, False))
        asked = asyncio.Event()

        async def no_answer(*_: Any, **__: Any) -> None:
            asked.set()
            await asyncio.Event().wait()

        reconciler = asyncio.create_task(stage.reconciler.reconcile())
        async with asyncio.timeout(LIMIT):
            await stage.server.writes.wait()
            monkeypatch.setattr(stage.server, "apply", no_answer)
            stage.cluster = cluster(False, True, order=("sweep-0", "sweep-1"), epoch=2)
            stage.agents_speak()
            await asked.wait()
        reconciler.cancel()
        await asyncio.wait([reconciler], timeout=LIMIT)
        return reconciler.cancelled()

    assert asyncio.run(run())
