"""Nodes and very many pods of other schedulers, made up as they are listed, so that their size in memory is the
extender's alone. Used by bench_extender.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from podium_cluster.client import Api
from podium_cluster.resources import NODES, PODS, Resource
from podium_cluster.watch import WatchCache
from podium_core.placement.free_cpus import cpu_request_of, node_cpus_of
from podium_extender.main import PAGE_SIZE
from podium_extender.state.free_cpus import FreeCpus

Json = dict[str, Any]


class Crowd:
    """Has the `list` and `watch` of an Api. `pods`: how many, each on one of the nodes."""

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        self._nodes = nodes
        self._pods = pods
        self.events: dict[Resource, asyncio.Queue[Json]] = {NODES: asyncio.Queue(), PODS: asyncio.Queue()}

    def room(self) -> FreeCpus:
        api = cast(Api, self)
        return FreeCpus(
            WatchCache(api, NODES, node_cpus_of, page=PAGE_SIZE), WatchCache(api, PODS, cpu_request_of, page=PAGE_SIZE)
        )

    async def list(self, resource: Resource, *_: Any, limit: int, after: str = "", **__: Any) -> Json:
        begin, whole = int(after or 0), len(self._nodes) if resource is NODES else self._pods
        end = min(begin + limit, whole)
        items = [self._node(i) if resource is NODES else self.pod(i) for i in range(begin, end)]
        return {"metadata": {"resourceVersion": "1"} | ({"continue": str(end)} if end < whole else {}), "items": items}

    async def watch(self, resource: Resource, *_: Any, **__: Any) -> AsyncIterator[Json]:
        while True:
            yield await self.events[resource].get()
            self.events[resource].task_done()

    async def change(self, number: int, cpu: str) -> None:
        """One of the pods is resized in place."""
        self.events[PODS].put_nowait({"type": "MODIFIED", "object": self.pod(number, cpu)})
        await self.events[PODS].join()

    def pod(self, number: int, cpu: str = "250m") -> Json:
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
        spec = {"nodeName": self._nodes[number % len(self._nodes)], "containers": [container]}
        meta = {"name": f"service-{number % 97}-5d9c7b8f6-{number:06d}", "namespace": f"team-{number % 50}"}
        return {"metadata": meta | {"resourceVersion": "2"}, "spec": spec, "status": {"phase": "Running"}}

    def _node(self, number: int) -> Json:
        return {"metadata": {"name": self._nodes[number]}, "status": {"allocatable": {"cpu": "96", "memory": "1Ti"}}}
