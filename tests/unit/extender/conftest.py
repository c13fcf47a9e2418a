"""A NodeCache over real WatchCaches with a fake API server, and the application over it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from podium_cluster.resources import Resource
from podium_cluster.watch import wait_all_synced
from podium_core.placement.policies.registry import DEFAULT, placement_policy
from podium_extender.app import create_app
from podium_extender.metrics import Metrics
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.state.node_cache import NodeCache
from podium_extender.verbs.decisions import NodeEvaluator
from podium_extender.verbs.events import EventRecorder
from podium_extender.verbs.handlers import Verbs
from podium_extender.verbs.preempt import PreemptVerb

sys.path.insert(0, str(Path(__file__).parent))  # malformed, live_caches, fake_scheduler: several modules use them

from fake_scheduler import run
from live_caches import caches_over

NOW = 1_800_000_000.0
Json = Mapping[str, Any]
Ask = Callable[..., httpx.Response]


class ListedOnce:
    """A fake API server that lists the given objects; its watches send no events."""

    def __init__(self, objects: Mapping[Resource, Sequence[Json]]) -> None:
        self._objects = objects

    async def list(self, resource: Resource, namespace: str | None = None, **_: Any) -> Json:
        return {"metadata": {"resourceVersion": "1"}, "items": list(self._objects.get(resource, ()))}

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Json]:
        await asyncio.Event().wait()
        yield {}


def _caches(objects: Mapping[Resource, Sequence[Json]]) -> NodeCache:
    return caches_over(ListedOnce(objects), lambda: NOW)


async def _ask(
    objects: Mapping[Resource, Sequence[Json]],
    path: str,
    body: Any,
    *,
    warm: bool = True,
    metrics: Metrics | None = None,
    body_limit: int = 2**20,
    method: str = "POST",
    placement: str = DEFAULT,
    max_requests: int = 32,
    events: EventRecorder | None = None,
    before: Sequence[tuple[str, Any]] = (),
) -> httpx.Response:
    """Send a request to a new extender, after the requests of `before` (paths and bodies)."""
    node_cache = _caches(objects)
    watched = [*node_cache.caches.values(), *node_cache.optional_caches.values()] if warm else []
    runs = [asyncio.create_task(cache.run()) for cache in watched]
    await wait_all_synced(watched)
    evaluator = NodeEvaluator(placement_policy(placement), 60.0)
    metrics = metrics or Metrics()
    preempt_verb = PreemptVerb(node_cache, metrics, evaluator.stale_after, events=events)
    verbs = Verbs(node_cache, metrics, evaluator, preempt_verb)
    app = create_app(verbs, metrics, ConcurrencyLimit(max_requests), body_limit)
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://extender") as client:
            for earlier, asked in before:
                await client.post(earlier, json=asked)
            if isinstance(body, bytes):
                return await client.request(method, path, content=body)
            return await client.request(method, path, json=body)
    finally:
        for run in runs:
            run.cancel()


@pytest.fixture
def caches() -> Callable[..., NodeCache]:
    """Return a function that creates a NodeCache over objects; the test runs its caches."""
    return _caches


@pytest.fixture
def play(caches: Callable[..., NodeCache]) -> Callable[..., None]:
    """Return `fake_scheduler.run` over the caches."""
    return partial(run, caches)


@pytest.fixture
def ask() -> Ask:
    return lambda *args, **named: asyncio.run(_ask(*args, **named))
