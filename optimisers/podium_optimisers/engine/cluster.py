"""The GPUs of a cluster, which of them are free, and where a gang goes. Called by the simulation.

A gang stays where it ran before if it can (nothing to move), else goes to the fullest node that holds it whole (best
fit), else is spread over as few nodes as possible. Ties go to the node with the lowest number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Place = tuple[tuple[int, int], ...]
"""Where a gang is: (node, bits of its GPUs there), sorted by node."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """`nodes` machines with `gpus_per_node` GPUs each."""

    nodes: int
    gpus_per_node: int

    def __post_init__(self) -> None:
        for field in ("nodes", "gpus_per_node"):
            value = getattr(self, field)
            if value < 1:
                raise ValueError(f"InvalidCluster: {field} is {value}; give 1 or more.")

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that a gang holds its GPUs without progress before it goes on after a preemption: `restart` where it ran
    before, `migration` on other nodes (the checkpoint travels). The first start is free: it is part of the duration.
    """

    restart: float = 0.0
    migration: float = 0.0

    def __post_init__(self) -> None:
        for field in ("restart", "migration"):
            value = getattr(self, field)
            if not (value >= 0.0 and math.isfinite(value)):
                raise ValueError(f"InvalidCost: {field} is {value} seconds; give 0 or more.")

    @property
    def worst(self) -> float:
        return max(self.restart, self.migration)


class Pool:
    """The free GPUs, one integer of bits a node. Taking what is not free raises RuntimeError: no double booking."""

    __slots__ = ("counts", "free", "masks")

    def __init__(self, cluster: Cluster) -> None:
        self.masks = [(1 << cluster.gpus_per_node) - 1] * cluster.nodes
        self.counts = [cluster.gpus_per_node] * cluster.nodes
        self.free = cluster.gpus

    def place(self, gpus: int, last: Place | None) -> Place:
        """Where a gang of `gpus` <= free goes; nothing is taken yet. O(nodes)."""
        if last is not None:
            if all(self.masks[node] & bits == bits for node, bits in last):
                return last
            if all(self.counts[node] >= bits.bit_count() for node, bits in last):
                return tuple((node, self._lowest(node, bits.bit_count())) for node, bits in last)
        counts = self.counts
        best, least = -1, self.free + 1
        for node, count in enumerate(counts):
            if gpus <= count < least:
                best, least = node, count
                if count == gpus:
                    break
        if best >= 0:
            return ((best, self._lowest(best, gpus)),)
        return self._spread(gpus)

    def take(self, place: Place) -> None:
        for node, bits in place:
            if self.masks[node] & bits != bits:
                raise RuntimeError(f"node {node}: GPUs {bits:b} are not all free ({self.masks[node]:b})")
            self.masks[node] ^= bits
            count = bits.bit_count()
            self.counts[node] -= count
            self.free -= count

    def release(self, place: Place) -> None:
        for node, bits in place:
            if self.masks[node] & bits:
                raise RuntimeError(f"node {node}: GPUs {bits:b} are free already ({self.masks[node]:b})")
            self.masks[node] |= bits
            count = bits.bit_count()
            self.counts[node] += count
            self.free += count

    def place_on(self, node: int, gpus: int) -> Place:
        """A place on this node. Errors: RuntimeError when it has not so many free."""
        if gpus > self.counts[node]:
            raise RuntimeError(f"node {node}: {gpus} GPUs were asked for, {self.counts[node]} are free")
        return ((node, self._lowest(node, gpus)),)

    def _spread(self, gpus: int) -> Place:
        parts = []
        for node in sorted(range(len(self.counts)), key=lambda node: (-self.counts[node], node)):
            share = min(gpus, self.counts[node])
            parts.append((node, self._lowest(node, share)))
            gpus -= share
            if gpus == 0:
                return tuple(sorted(parts))
        raise RuntimeError(f"{gpus} GPUs more than are free were asked for")

    def _lowest(self, node: int, count: int) -> int:
        mask, bits = self.masks[node], 0
        for _ in range(count):
            lowest = mask & -mask
            bits |= lowest
            mask ^= lowest
        return bits


def moved(before: Place, after: Place) -> bool:
    """Did the gang change nodes? Other GPUs of the same nodes are no migration."""
    return [node for node, _ in before] != [node for node, _ in after]
