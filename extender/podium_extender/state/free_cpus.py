"""Free CPUs of each node, from watches of the nodes and of the pods of all other schedulers.

The node cache adds the scheduler's own pods. An event changes one number, so a request costs the same for any number of
pods. Without the right to watch, and after a long silence of the API server, the free CPUs are unknown. Old numbers
would place pods on nodes without free CPUs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from podium_cluster.watch import Key, WatchCache
from podium_core.placement.free_cpus import CpuRequest, NodeCpus
from podium_core.placement.node_parser import PlacedPod

# A working watch receives every event, and a bookmark of the API server about once a minute.
MAX_SILENCE_SECONDS = 300.0


class FreeCpus:
    """Free CPUs by node; data older than `silence` seconds is not trusted."""

    def __init__(
        self, nodes: WatchCache[NodeCpus], others: WatchCache[CpuRequest], silence: float = MAX_SILENCE_SECONDS
    ) -> None:
        self._nodes = nodes
        self._others = others
        self._silence = silence
        self._requested: defaultdict[str, int] = defaultdict(int)
        self._changed: set[str] = set()
        nodes.follow(self._node_changed)
        others.follow(self._pod_changed)

    @property
    def caches(self) -> Mapping[str, WatchCache[Any]]:
        """The caches to run, by name."""
        return {"nodes": self._nodes, "other pods": self._others}

    def known(self) -> bool:
        """Return whether the numbers can be trusted now."""
        return all(cache.synced and cache.age() <= self._silence for cache in self.caches.values())

    def free(self, node: str, own: Iterable[PlacedPod]) -> int | None:
        """Return the millicores that no pod requests; None for an unknown node.

        `own` are the scheduler's own pods on the node.
        """
        total = self._nodes.get("", node)
        if total is None:
            return None
        return total.cpu - self._requested.get(node, 0) - sum(pod.requests.get("cpu", 0) for pod in own)

    def changed(self) -> frozenset[str]:
        """Return the nodes whose numbers changed since the last call."""
        changed, self._changed = frozenset(self._changed), set()
        return changed

    def _node_changed(self, key: Key, before: NodeCpus | None, after: NodeCpus | None) -> None:
        if before != after:  # a node's heartbeat changes nothing
            self._changed.add(key[1])

    def _pod_changed(self, key: Key, before: CpuRequest | None, after: CpuRequest | None) -> None:
        if before == after:
            return
        for request, sign in ((before, -1), (after, 1)):
            if request is not None:
                self._requested[request.node] += sign * request.cpu
                self._changed.add(request.node)
