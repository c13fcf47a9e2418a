"""Hermes' Find_Available_GPU as a score: the node whose GPUs have the shortest queues and the least work comes
first.

Called by the extender's prioritize. Scores are spread over 0 to 10 so that they weigh against kube-scheduler's own;
a node that nothing is known of gets the middle: never taken for idle, never for full.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium.placement.fit import STALE_AFTER, refuse, usable
from podium.placement.views import GpuReading, NodeScore, NodeView, PodNeed

__all__ = ["STALE_AFTER", "load_balance", "load_of", "refuse"]

HIGHEST = 10
MIDDLE = 5
_QUEUE, _WORK, _MEMORY, _THROTTLED = 0.6, 0.25, 0.15, 0.2
_ALIKE = 1e-9


def load_of(gpu: GpuReading) -> float:
    """From 0 (idle) to about 1 (all shares taken, busy, memory reserved); a throttled GPU counts as busier."""
    queue = gpu.trials / gpu.shares if gpu.shares > 0 else 1.0
    memory = max(gpu.memory_reserved, gpu.memory_used) / gpu.memory_total if gpu.memory_total > 0 else 0.0
    work = gpu.sm_utilization / 100.0
    load = _QUEUE * min(1.0, queue) + _WORK * min(1.0, max(0.0, work)) + _MEMORY * min(1.0, memory)
    return load + (_THROTTLED if gpu.throttled else 0.0)


def load_balance(
    need: PodNeed, nodes: Sequence[NodeView], now: float, stale_after: float = STALE_AFTER
) -> tuple[NodeScore, ...]:
    """One score for each node, in the order given: least loaded 10, most loaded 0, alike or unknown 5. O(GPUs log
    GPUs).
    """
    loads = [_node_load(need, node, now, stale_after) for node in nodes]
    known = [load for load in loads if load is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return tuple(_score(node, load, low, high) for node, load in zip(nodes, loads, strict=True))


def _node_load(need: PodNeed, node: NodeView, now: float, stale_after: float) -> float | None:
    """Mean load of the GPUs that the pod would get: those with a free share and the least load."""
    if node.stale(now, stale_after):
        return None
    gpus = [gpu for gpu in usable(need, node, fresh=True) if gpu.health == "Healthy"]
    wanted = max(1, need.gpus)
    if len(gpus) < wanted:
        return None
    best = sorted(gpus, key=lambda g: (g.trials >= g.shares, load_of(g), g.uuid))[:wanted]
    return sum(load_of(gpu) for gpu in best) / wanted


def _score(node: NodeView, load: float | None, low: float, high: float) -> NodeScore:
    if load is None:
        return NodeScore(node.name, MIDDLE, "Nothing recent is known of enough healthy GPUs: the middle.")
    if high - low <= _ALIKE:
        return NodeScore(node.name, MIDDLE, f"Load {load:.2f}, like every other node.")
    value = round(HIGHEST * (high - load) / (high - low))
    return NodeScore(node.name, value, f"Load {load:.2f}; the nodes range from {low:.2f} to {high:.2f}.")
