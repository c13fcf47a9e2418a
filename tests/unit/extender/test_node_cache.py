"""Views are updated event by event: after any events they equal those of a restart."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_caches import Live

from podium_cluster import watch
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, LEASES, PODS, TRIALS, Resource, Selection
from podium_cluster.watch import WatchCache
from podium_core.placement.views import NodeView
from podium_extender.main import prepare_when_synced
from podium_extender.state import node_cache
from podium_extender.state.node_cache import Heartbeats, NodeCache, Watches, parse_gpunode, parse_pod
from podium_extender.state.trials import parse_trial

NOW = 1_800_000_000.0
FRESH = "2027-01-15T07:59:50Z"
AHEAD = "2027-01-15T09:00:00Z"
NODES = ("a", "b", "c")
Json = dict[str, Any]


def _meta(name: str, namespace: str = "default") -> Json:
    return {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "2"}


def gpunode(chance: random.Random, name: str) -> Json:
    sitting = chance.sample(range(6), chance.randrange(4))
    trials = [
        {
            "namespace": "default",
            "trial": f"t{i}",
            "uid": f"t{i}",
            "pod": f"p{i}",
            "podUID": f"uid-p{i}",
            "state": "Running",
            "since": FRESH,
        }
        for i in sitting
    ]
    gpu = {"uuid": f"GPU-{name}", "index": 0, "health": "Healthy", "slots": 4, "trials": trials}
    status = {"updatedAt": chance.choice([FRESH, AHEAD]), "gpus": [gpu, {"uuid": "other", "index": 1, "slots": 4}]}
    return {"metadata": _meta(name, ""), "status": status}


def pod(chance: random.Random, name: str) -> Json:
    container = {"name": "c", "resources": {"requests": {"podium.dev/gpu": str(chance.choice([1, 1, 2]))}}}
    spec = {"nodeName": chance.choice(["", *NODES]), "containers": [container]}
    return {"metadata": _meta(name), "spec": spec, "status": {"phase": chance.choice(["Running", "Succeeded"])}}


def trial(chance: random.Random, name: str) -> Json:
    return {"metadata": _meta(name), "status": {"rank": chance.choice([None, 1, 2])}}


def lease(chance: random.Random, name: str) -> Json:
    return {"metadata": _meta(f"podium-agent-{name}", "podium-system"), "spec": {"renewTime": FRESH}}


class LiveCaches:
    """A node cache over live servers."""

    def __init__(self, servers: Mapping[Resource, Live]) -> None:
        self.servers = servers
        clock = lambda: NOW  # noqa: E731
        self.node_cache = NodeCache(
            Watches(
                WatchCache(cast(Api, servers[GPUNODES]), Selection(GPUNODES), parse_gpunode),
                WatchCache(cast(Api, servers[PODS]), Selection(PODS), parse_pod),
                WatchCache(cast(Api, servers[LEASES]), Selection(LEASES, "podium-system"), Heartbeats(clock).parse),
                WatchCache(cast(Api, servers[TRIALS]), Selection(TRIALS), parse_trial),
            ),
            namespace="podium-system",
            clock=clock,
        )
        self.runs = [asyncio.create_task(cache.run()) for cache in self.node_cache.caches.values()]

    async def settle(self) -> None:
        await asyncio.gather(*(cache.wait_synced() for cache in self.node_cache.caches.values()))
        for server in self.servers.values():
            await server.events.join()

    def stop(self) -> None:
        for run in self.runs:
            run.cancel()


async def _compare(seed: int) -> None:
    chance = random.Random(seed)
    make = {GPUNODES: gpunode, PODS: pod, TRIALS: trial, LEASES: lease}
    names = {GPUNODES: NODES, PODS: [f"p{i}" for i in range(6)], TRIALS: [f"t{i}" for i in range(6)], LEASES: NODES}
    live = LiveCaches({resource: Live(resource, {}) for resource in make})
    await live.settle()
    for _ in range(25):
        resource = chance.choice(list(make))
        name = chance.choice(names[resource])
        live.servers[resource].put(name, make[resource](chance, name) if chance.random() < 0.8 else None)
        if chance.random() < 0.5:
            await live.settle()
            live.node_cache.views()
    await live.settle()
    restarted = LiveCaches({resource: Live(resource, server.objects) for resource, server in live.servers.items()})
    await restarted.settle()
    try:
        seen = [live.node_cache.views().get(name) for name in NODES]
        assert seen == [restarted.node_cache.views().get(name) for name in NODES]
        live.node_cache._uncounted = 1000  # what is typical may lag behind by a tenth of the pods, and no more
        assert live.node_cache.typical() == restarted.node_cache.typical()
        for view in seen:
            assert view.reported_at is None or view.reported_at <= NOW, "a clock that is ahead is not believed"
    finally:
        live.stop()
        restarted.stop()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, node_cache.BACKLOG]))
def test_events_lead_to_the_same_views_as_a_restart(seed: int, backlog: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_cache, "BACKLOG", backlog)
        asyncio.run(_compare(seed))


def test_changes_of_many_nodes_are_processed_before_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a quiet minute every node has changed, and kube-scheduler waits for at most one second."""
    names = [f"n{i:03d}" for i in range(3 * node_cache.BACKLOG)]
    chance = random.Random(0)
    made: list[str] = []

    async def main() -> None:
        servers = {resource: Live(resource, {}) for resource in (PODS, LEASES, TRIALS)}
        servers[GPUNODES] = Live(GPUNODES, {name: gpunode(chance, name) for name in names})
        live = LiveCaches(servers)
        try:
            warm = prepare_when_synced(live.node_cache, live.node_cache.caches.values())
            await asyncio.gather(warm, live.settle())
            for name in names:
                servers[GPUNODES].put(name, gpunode(chance, name))
            await live.settle()
            monkeypatch.setattr(node_cache, "node_view", lambda name, *_: made.append(name) or NodeView(name, (), None))
            live.node_cache.views()
        finally:
            live.stop()

    asyncio.run(main())
    assert len(made) < node_cache.BACKLOG


def test_listing_unchanged_objects_again_updates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    async def main() -> None:
        servers = {resource: Live(resource, {}) for resource in (PODS, LEASES, TRIALS)}
        servers[GPUNODES] = Live(GPUNODES, {name: gpunode(random.Random(0), name) for name in NODES})
        live = LiveCaches(servers)
        try:
            await asyncio.gather(prepare_when_synced(live.node_cache, live.node_cache.caches.values()), live.settle())
            monkeypatch.setattr(node_cache, "node_view", lambda name, *_: made.append(name) or NodeView(name, (), None))
            for name, payload in list(servers[GPUNODES].objects.items()):
                servers[GPUNODES].put(name, payload)
            await live.settle()
            live.node_cache.views()
        finally:
            live.stop()

    asyncio.run(main())
    assert made == []


def test_other_tasks_run_while_a_long_list_is_parsed() -> None:
    """After an outage of the API server, parsing 5,000 GPUNodes takes more than half of the scheduler's second."""
    read: list[Mapping[str, Any]] = []

    def parse(payload: Mapping[str, Any]) -> Mapping[str, Any]:
        read.append(payload)
        return payload

    async def main() -> int:
        chance = random.Random(0)
        live = Live(GPUNODES, {name: gpunode(chance, name) for name in (f"n{i:03d}" for i in range(500))})
        cache = WatchCache(cast(Api, live), Selection(GPUNODES), parse)
        run, longest = asyncio.create_task(cache.run()), 0
        while not cache.synced:
            before = len(read)
            await asyncio.sleep(0)
            longest = max(longest, len(read) - before)
        run.cancel()
        return longest

    longest = asyncio.run(main())
    assert len(read) == 500
    assert longest <= watch.PARSE_BATCH
