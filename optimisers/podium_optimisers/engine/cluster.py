"""The GPUs of a simulated cluster, the free ones among them, and the placement of gangs.

A gang (a job that needs several GPUs at once) returns to its last placement if it can, which avoids a migration.
Otherwise it goes to the fullest node that holds it whole (best fit), or is spread over as few nodes as possible. Ties
go to the node with the lowest number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Placement = tuple[tuple[int, int], ...]
"""The GPUs of a gang: pairs of (node, bit mask of its GPUs on that node), sorted by node."""


@dataclass(frozen=True, slots=True)
class GpuCluster:
    """A cluster of `nodes` machines with `gpus_per_node` GPUs each."""

    nodes: int
    gpus_per_node: int

    def __post_init__(self) -> None:
        for field in ("nodes", "gpus_per_node"):
            value = getattr(self, field)
            if value < 1:
                raise ValueError(f"InvalidCluster: {field} must be at least 1 (got {value}).")

    @property
    def gpus(self) -> int:
        """Return the number of GPUs in the cluster."""
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class PreemptionCosts:
    """The time that a preempted gang needs before it makes progress again, in seconds.

    The gang holds its GPUs during that time. `restart` applies when it resumes on the same nodes, and `migration` when
    its checkpoint moves to other nodes. The first start is free because the duration includes it.
    """

    restart: float = 0.0
    migration: float = 0.0

    def __post_init__(self) -> None:
        for field in ("restart", "migration"):
            value = getattr(self, field)
            if not (value >= 0.0 and math.isfinite(value)):
                raise ValueError(f"InvalidCost: {field} must be a finite number of seconds, at least 0 (got {value}).")

    @property
    def worst(self) -> float:
        """Return the larger of the two costs."""
        return max(self.restart, self.migration)


class GpuPool:
    """The free GPUs of a cluster, as one bit mask for each node.

    Allocating GPUs that are not free raises RuntimeError, which rules out double booking.
    """

    __slots__ = ("free", "free_counts", "free_masks")

    def __init__(self, cluster: GpuCluster) -> None:
        self.free_masks = [(1 << cluster.gpus_per_node) - 1] * cluster.nodes
        self.free_counts = [cluster.gpus_per_node] * cluster.nodes
        self.free = cluster.gpus

    def choose_gpus(self, gpus: int, last_placement: Placement | None) -> Placement:
        """Choose the GPUs for a gang of `gpus` <= `free` without allocating them. O(nodes)."""
        if last_placement is not None:
            if all(self.free_masks[node] & bits == bits for node, bits in last_placement):
                return last_placement
            if all(self.free_counts[node] >= bits.bit_count() for node, bits in last_placement):
                return tuple((node, self._lowest(node, bits.bit_count())) for node, bits in last_placement)
        free_counts = self.free_counts
        best, least = -1, self.free + 1
        for node, count in enumerate(free_counts):
            if gpus <= count < least:
                best, least = node, count
                if count == gpus:
                    break
        if best >= 0:
            return ((best, self._lowest(best, gpus)),)
        return self._spread(gpus)

    def allocate(self, placement: Placement) -> None:
        """Allocate these GPUs. Raise RuntimeError if one of them is not free."""
        for node, bits in placement:
            if self.free_masks[node] & bits != bits:
                raise RuntimeError(f"node {node}: GPUs {bits:b} are not all free ({self.free_masks[node]:b})")
            self.free_masks[node] ^= bits
            count = bits.bit_count()
            self.free_counts[node] -= count
            self.free -= count

    def release(self, placement: Placement) -> None:
        """Release these GPUs. Raise RuntimeError if one of them is already free."""
        for node, bits in placement:
            if self.free_masks[node] & bits:
                raise RuntimeError(f"node {node}: GPUs {bits:b} are already free ({self.free_masks[node]:b})")
            self.free_masks[node] |= bits
            count = bits.bit_count()
            self.free_counts[node] += count
            self.free += count

    def choose_gpus_on(self, node: int, gpus: int) -> Placement:
        """Choose GPUs on this node. Raise RuntimeError if the node has too few free GPUs."""
        if gpus > self.free_counts[node]:
            raise RuntimeError(f"node {node}: {gpus} GPUs were requested, but only {self.free_counts[node]} are free")
        return ((node, self._lowest(node, gpus)),)

    def _spread(self, gpus: int) -> Placement:
        """Choose GPUs on as few nodes as possible: the nodes with the most free GPUs first."""
        parts = []
        for node in sorted(range(len(self.free_counts)), key=lambda node: (-self.free_counts[node], node)):
            share = min(gpus, self.free_counts[node])
            parts.append((node, self._lowest(node, share)))
            gpus -= share
            if gpus == 0:
                return tuple(sorted(parts))
        raise RuntimeError(f"the request exceeds the free GPUs of the cluster by {gpus}")

    def _lowest(self, node: int, count: int) -> int:
        """Return a bit mask of the `count` free GPUs with the lowest numbers on a node."""
        mask, bits = self.free_masks[node], 0
        for _ in range(count):
            lowest = mask & -mask
            bits |= lowest
            mask ^= lowest
        return bits


def is_migration(before: Placement, after: Placement) -> bool:
    """Return whether the gang changed nodes. Other GPUs on the same nodes are not a migration."""
    return [node for node, _ in before] != [node for node, _ in after]
