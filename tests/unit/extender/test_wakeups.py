"""Wake-ups over real caches: what is written, a failed write, and pods that wait at the start."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

from live_caches import caches_over, event, gpunode, running

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES, PODS, Resource
from podium_extender.metrics import Metrics
from podium_extender.requeue.unschedulable_queue import TokenBucket, UnschedulableQueue
from podium_extender.requeue.wakeups import RETRY_ANNOTATION, follow_pods, wake_pods
from podium_extender.state.node_cache import NodeCache

NOW = 1_800_000_000.0
Json = Mapping[str, Any]


class Server:
    """A fake API server that lists the given objects, sends the events of the test and answers patches."""

    def __init__(self, objects: Mapping[Resource, Sequence[Json]]) -> None:
        self._objects = objects
        self.events: defaultdict[Resource, asyncio.Queue[Json]] = defaultdict(asyncio.Queue)
        self.patches: asyncio.Queue[tuple[str | None, str, str | None, list[str]]] = asyncio.Queue()
        self.errors: list[ApiError] = []

    async def list(self, resource: Resource, namespace: str | None = None, **_: Any) -> Json:
        return {"metadata": {"resourceVersion": "1"}, "items": list(self._objects.get(resource, ()))}

    async def watch(self, resource: Resource, *_: Any, **__: Any) -> AsyncIterator[Json]:
        while True:
            yield await self.events[resource].get()

    async def patch(
        self,
        _: Resource,
        name: str,
        namespace: str | None,
        patch: Json,
        *,
        manager: str,
        subresource: str | None = None,
    ) -> Json:
        self.patches.put_nowait((namespace, name, subresource, list(patch["metadata"]["annotations"])))
        if self.errors:
            raise self.errors.pop()
        return {}


def pod(name: str, phase: str = "Pending", gpus: str = "1", node: str = "") -> Json:
    container = {"name": "c", "resources": {"requests": {"podium.dev/gpu": gpus} if gpus else {}}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "2"},
        "spec": {"schedulerName": "podium", "containers": [container], "nodeName": node},
        "status": {"phase": phase},
    }


def run(server: Server, story: Callable[[UnschedulableQueue, NodeCache], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        node_cache = caches_over(server, lambda: NOW)
        queue = UnschedulableQueue(60.0, TokenBucket(1.0, 10))
        follow_pods(node_cache, queue)
        async with running(node_cache, wake_pods(cast(Api, server), node_cache, queue, Metrics())):
            await story(queue, node_cache)

    asyncio.run(main())


def test_a_failed_wakeup_is_repeated() -> None:
    server = Server({GPUNODES: [gpunode("Unhealthy")], PODS: [pod("patient")]})
    server.errors = [ApiError(503, "ServiceUnavailable", "restarting")]
    wake = ("default", "patient", "status", [RETRY_ANNOTATION])

    async def story(queue: UnschedulableQueue, node_cache: NodeCache) -> None:
        for _ in range(2):
            for health in ("Unhealthy", "Healthy"):
                server.events[GPUNODES].put_nowait(event("MODIFIED", gpunode(health)))
            assert await server.patches.get() == wake
        assert not server.errors

    run(server, story)


def test_a_pod_that_waits_at_the_start_is_woken() -> None:
    gated = pod("gated")
    gated["spec"]["schedulingGates"] = [{"name": "quota"}]  # the scheduler has not tried it, so no node refused it
    others = [pod("over", "Failed"), pod("placed", node="a"), pod("no gpu", gpus=""), gated]
    server = Server({GPUNODES: [gpunode("Unhealthy")], PODS: [*others, pod("patient"), pod("goes")]})

    async def story(queue: UnschedulableQueue, node_cache: NodeCache) -> None:
        assert len(queue) == 2
        deleted = asyncio.Event()
        node_cache.caches["pods"].subscribe(deleted.set)
        server.events[PODS].put_nowait(event("DELETED", pod("goes")))
        await deleted.wait()
        server.events[GPUNODES].put_nowait(event("MODIFIED", gpunode("Healthy")))
        assert (await server.patches.get())[1] == "patient"
        assert len(queue) == 0

    run(server, story)
