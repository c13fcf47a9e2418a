"""Free CPUs of each node, kept by two watches: nodes (what they have) and the pods of all other schedulers (what they
request). The scheduler's own pods are `telemetry`'s, which asks here.

An event changes one number, so a request costs the same however many pods there are. Without the right to watch them,
or when the API server has not been heard for long, nothing is known: a number that is too old packs pods onto nodes
that cannot feed them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from podium_cluster.watch import Key, WatchCache
from podium_core.placement.free_cpus import CpuRequest, NodeCpus
from podium_core.placement.node_parser import PlacedPod

# A watch that is whole is heard with every event, and with a bookmark of the API server's about once a minute.
LONGEST_SILENCE = 300.0


class Room:
    """`silence`: seconds after which what was heard is not believed."""

    def __init__(
        self, nodes: WatchCache[NodeCpus], others: WatchCache[CpuRequest], silence: float = LONGEST_SILENCE
    ) -> None:
        self._nodes = nodes
        self._others = others
        self._silence = silence
        self._taken: defaultdict[str, int] = defaultdict(int)
        self._changed: set[str] = set()
        nodes.follow(self._node_changed)
        others.follow(self._seat_changed)

    @property
    def caches(self) -> Mapping[str, WatchCache[Any]]:
        return {"nodes": self._nodes, "other pods": self._others}

    def known(self) -> bool:
        return all(cache.synced and cache.age() <= self._silence for cache in self.caches.values())

    def free(self, node: str, own: Iterable[PlacedPod]) -> int | None:
        """Thousandths that neither others' pods nor these request; None where the node is not known."""
        whole = self._nodes.get("", node)
        if whole is None:
            return None
        return whole.cpu - self._taken.get(node, 0) - sum(pod.requests.get("cpu", 0) for pod in own)

    def changed(self) -> frozenset[str]:
        """Nodes on which something changed since this was asked last."""
        found, self._changed = frozenset(self._changed), set()
        return found

    def _node_changed(self, key: Key, before: NodeCpus | None, after: NodeCpus | None) -> None:
        if before != after:  # a node's heartbeat is no news
            self._changed.add(key[1])

    def _seat_changed(self, key: Key, before: CpuRequest | None, after: CpuRequest | None) -> None:
        if before == after:
            return
        for seat, sign in ((before, -1), (after, 1)):
            if seat is not None:
                self._taken[seat.node] += sign * seat.cpu
                self._changed.add(seat.node)
