"""A scheduler that sends an extender more nodes than filter selects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from podium_cluster.resources import GPUNODES
from podium_cluster.watch import wait_all_synced
from podium_core.placement.policies.registry import DEFAULT, placement_policy
from podium_extender.metrics import Metrics
from podium_extender.state.node_cache import NodeCache
from podium_extender.verbs.decisions import NodeEvaluator
from podium_extender.verbs.handlers import Verbs

Json = dict[str, Any]
Caches = Callable[..., NodeCache]
Story = Callable[["Scheduler"], Awaitable[None]]
LIMIT = 4
NAMES = [f"n{i:02d}" for i in range(12)]
PREFERENCE = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}


def gpunode(name: str, **changes: Any) -> Json:
    gpu = {"uuid": f"GPU-{name}", "index": 0, "product": "P", "memoryTotal": 100, "health": "Healthy", "slots": 4}
    status = {"updatedAt": "2027-01-15T07:59:50Z", "gpus": [gpu | changes]}
    return {"metadata": {"name": name, "resourceVersion": "2"}, "spec": {}, "status": status}


def pod(uid: str, resource: str = "podium.dev/gpu", labels: Mapping[str, str] | None = None, **spec: Any) -> Json:
    container = {"name": "c", "resources": {"requests": {resource: "1"}}}
    meta = {"name": uid, "namespace": "default", "uid": uid, "labels": {"podium.dev/trial": uid} | dict(labels or {})}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


class Scheduler:
    """A scheduler that sends requests as kube-scheduler does and takes the node with the highest score."""

    def __init__(self, node_cache: NodeCache, placement: str, limit: int) -> None:
        self.metrics = Metrics()
        self.verbs = Verbs(
            node_cache, self.metrics, NodeEvaluator(placement_policy(placement), 60.0), scored_nodes=limit
        )

    def filter(self, asked: Json, names: Sequence[str] = NAMES) -> Json:
        found: Json = self._ask("filter", asked, names)
        return found

    def prioritize(self, asked: Json, names: Sequence[str] = NAMES) -> dict[str, int]:
        return {row["Host"]: row["Score"] for row in self._ask("prioritize", asked, names)}

    def place(self, asked: Json, names: Sequence[str] = NAMES) -> str:
        left = self.filter(asked, names)["NodeNames"]
        scores = self.prioritize(asked, left) if len(left) > 1 else dict.fromkeys(left, 0)
        return max(scores, key=scores.__getitem__)

    def count_of(self, reason: str) -> float | None:
        return self.metrics.registry.get_sample_value("podium_extender_filter_answers_total", {"nodes": reason})

    def _ask(self, verb: str, asked: Json, names: Sequence[str]) -> Any:
        question = {"Pod": asked, "Nodes": None, "NodeNames": list(names)}
        return json.loads(self.verbs.answer(verb, json.dumps(question, separators=(",", ":")).encode(), 0.0))


def run(
    caches: Caches,
    story: Story,
    objects: Any = None,
    placement: str = DEFAULT,
    limit: int = LIMIT,
    unsynced: bool = False,
) -> None:
    """Run a story with a scheduler over these objects.

    By default nodes with later names are busier. With `unsynced` the optional caches have no list yet.
    """
    nodes = [gpunode(name, smUtilization=5.0 * i) for i, name in enumerate(NAMES)]

    async def main() -> None:
        node_cache = caches({GPUNODES: nodes} if objects is None else objects)
        seen = [*node_cache.caches.values(), *([] if unsynced else node_cache.optional_caches.values())]
        runs = [asyncio.create_task(cache.run()) for cache in seen]
        async with asyncio.timeout(30):
            await wait_all_synced(seen)
            await story(Scheduler(node_cache, placement, limit))
        for one in runs:
            one.cancel()

    asyncio.run(main())
