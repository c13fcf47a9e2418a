"""What is left of a node's GPUs and what typical pods could do with it, as arrays. Shared by the two policies that look
ahead, `fragmentation` and `fill`.

A GPU is counted in thousandths, as the FGD paper does; what is free of it is the scarcer of its shares and of the
memory that nobody declared. The GPUs of a node are taken to be of one kind, as they are in practice.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.placement.base import Question, candidates
from podium.placement.charge import charge_at, least_loaded
from podium.placement.views import GpuReading, NodeView, PodNeed

WHOLE = 1000
MIXES_KEPT = 32
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Typical = tuple[tuple[PodNeed, float], ...]


@dataclass(frozen=True, slots=True)
class Mix:
    """Typical pods on GPUs of one kind, an entry a pod: its part of all, how many GPUs, how much of each (more than
    WHOLE: this product is not wanted), thousandths of CPUs.
    """

    parts: Floats
    gpus: Ints
    sizes: Ints
    cpus: Ints


@dataclass(frozen=True, slots=True)
class Left:
    """Free thousandths of each GPU, and of CPUs (infinite where it is not known)."""

    gpus: Ints
    cpus: float


def left_of(node: NodeView) -> Left:
    free = np.array([_free(gpu) for gpu in node.gpus], dtype=np.int64)
    return Left(free, math.inf if node.cpu_free is None else node.cpu_free)


def outcomes(question: Question, node: NodeView, before: Left) -> list[tuple[tuple[int, ...], Left]]:
    """Which GPUs the pod may get, and what is left then: one possibility where the device plugin decides."""
    need = question.need
    cpus = before.cpus - need.cpu
    if need.gpus <= 0:
        return [((), Left(before.gpus, cpus))]
    if not question.picks:
        possible = [least_loaded(node.gpus, need)]
    else:
        size = min((_size(need, gpu) for gpu in node.gpus), default=WHOLE + 1)
        fit = sorted(np.flatnonzero(before.gpus >= size).tolist(), key=lambda i: (before.gpus[i], i))
        # GPUs with as much left are alike
        alike = {int(before.gpus[i]): (i,) for i in reversed(fit)}
        possible = list(alike.values()) if need.gpus == 1 else [tuple(fit[: need.gpus])]
    found = []
    for chosen in possible:
        gpus = before.gpus.copy()
        charged = charge_at(node.gpus, chosen, need)
        for i in chosen:
            gpus[i] = _free(charged[i])
        found.append((chosen, Left(gpus, cpus)))
    return found


_mixes: OrderedDict[tuple[int, str, int, int], tuple[Typical, Mix]] = OrderedDict()


def mix_of(typical: Typical, gpu: GpuReading) -> Mix:
    """The very object `typical` comes with every question, so it is known by its identity: comparing takes longer."""
    key = id(typical), gpu.product, gpu.shares, gpu.memory_total
    kept = _mixes.get(key)
    if kept is None or kept[0] is not typical:
        wanted = [(need, part) for need, part in typical if need.gpus > 0]
        mix = Mix(
            parts=np.array([part for _, part in wanted], dtype=np.float64),
            gpus=np.array([need.gpus for need, _ in wanted], dtype=np.int64),
            sizes=np.array([_size(need, gpu) for need, _ in wanted], dtype=np.int64),
            cpus=np.array([need.cpu for need, _ in wanted], dtype=np.int64),
        )
        kept = _mixes[key] = typical, mix
        if len(_mixes) > MIXES_KEPT:
            _mixes.popitem(last=False)
    return kept[1]


def best_way(
    question: Question, node: NodeView, loss: Callable[[Mix, Left], float]
) -> tuple[float, tuple[int, ...]] | None:
    """By how much `loss` grows at least when the pod is put there, and on which GPUs; None: it may not go there."""
    if candidates(question.need, node) is None:
        return None
    if not node.gpus:
        return 0.0, ()
    mix = mix_of(question.typical or ((question.need, 1.0),), node.gpus[0])
    before = left_of(node)
    now = loss(mix, before)
    ways = ((loss(mix, after) - now, chosen) for chosen, after in outcomes(question, node, before))
    return min(ways, default=None) or (float(len(node.gpus)), ())  # it fits nowhere


def served(mix: Mix, left: Left) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For each typical pod: which GPUs have room for it (a row a pod), and whether the node as a whole has."""
    room = left.gpus[np.newaxis, :] >= mix.sizes[:, np.newaxis]
    return room, (room.sum(axis=1) >= mix.gpus) & (mix.cpus <= left.cpus)


def _size(need: PodNeed, gpu: GpuReading) -> int:
    if need.products and gpu.product not in need.products:
        return WHOLE + 1
    memory = (need.memory or 0) / gpu.memory_total if gpu.memory_total > 0 else 0.0
    return min(WHOLE + 1, math.ceil(WHOLE * max(memory, 1 / gpu.shares if gpu.shares > 0 else 0.0) - 1e-9))


def free_part(gpu: GpuReading) -> float:
    """From 0 to 1; nothing of a broken one."""
    if gpu.shares <= 0 or gpu.health == "Unhealthy":
        return 0.0
    shares = (gpu.shares - gpu.trials) / gpu.shares
    memory = (gpu.memory_total - gpu.memory_reserved) / gpu.memory_total if gpu.memory_total > 0 else 1.0
    return max(0.0, min(shares, memory))


def _free(gpu: GpuReading) -> int:
    return math.floor(WHOLE * free_part(gpu) + 1e-9)
