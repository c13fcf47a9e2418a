"""The extender's caches over a server of the test: create them and run them beside a story."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, LEASES, NODES, PODS, TRIALS, Resource, Selection
from podium_cluster.watch import WatchCache, wait_all_synced
from podium_core.placement.free_cpus import node_cpus_of
from podium_extender.state.node_cache import Heartbeats, NodeCache, Watches, parse_gpunode, parse_pod
from podium_extender.state.soft_preferences import SoftPreferences
from podium_extender.state.trials import parse_trial

Json = Mapping[str, Any]

_versions = itertools.count(100)


def event(kind: str, payload: Json) -> Json:
    """Return an event of a watch about an object, with a version of its own."""
    about = {**payload["metadata"], "resourceVersion": str(next(_versions))}
    return {"type": kind, "object": {**payload, "metadata": about}}


class Live:
    """A fake API server that lists its objects and then sends the events of the test."""

    def __init__(self, resource: Resource, objects: Mapping[str, Json]) -> None:
        self.resource = resource
        self.objects = dict(objects)
        self.events: asyncio.Queue[Json] = asyncio.Queue()

    async def list(self, *_: Any, **__: Any) -> Json:
        return {"metadata": {"resourceVersion": "1"}, "items": list(self.objects.values())}

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Json]:
        while True:
            yield await self.events.get()
            self.events.task_done()

    def put(self, name: str, payload: Json | None) -> None:
        gone = self.objects.pop(name, None)
        if payload is not None:
            change = event("MODIFIED", payload)
            self.objects[name] = change["object"]
            self.events.put_nowait(change)
        elif gone is not None:
            self.events.put_nowait(event("DELETED", gone))


def caches_over(server: object, clock: Callable[[], float]) -> NodeCache:
    """Return the caches over `server`, which has the methods `list` and `watch` of an Api."""
    api = cast(Api, server)
    own = WatchCache(api, Selection(PODS), parse_pod)
    return NodeCache(
        Watches(
            WatchCache(api, Selection(GPUNODES), parse_gpunode),
            own,
            WatchCache(api, Selection(LEASES, namespace="podium-system"), Heartbeats(clock).parse),
            WatchCache(api, Selection(TRIALS), parse_trial),
        ),
        namespace="podium-system",
        clock=clock,
        preferences=SoftPreferences(WatchCache(api, Selection(NODES), node_cpus_of), [own]),
    )


def gpunode(health: str) -> Json:
    """Return node a with one GPU, reported at 1,800,000,000."""
    gpu = {"uuid": "GPU-1", "index": 0, "product": "Fake", "memoryTotal": 1, "health": health, "slots": 4}
    status = {"updatedAt": "2027-01-15T08:00:00Z", "gpus": [gpu]}
    return {"metadata": {"name": "a", "resourceVersion": "2"}, "status": status}


@asynccontextmanager
async def running(node_cache: NodeCache, beside: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the watches and `beside`; the block starts when the caches are synced and has five minutes."""
    runs = [asyncio.create_task(cache.run()) for cache in node_cache.caches.values()]
    runs.append(asyncio.create_task(beside))
    try:
        async with asyncio.timeout(300):
            await wait_all_synced(node_cache.caches.values())
            yield
    finally:
        for one in runs:
            one.cancel()
        for one in runs:
            with suppress(asyncio.CancelledError):
                await one
