"""What is left of nodes' GPUs and what typical pods could do with it, as arrays: one row a node. Shared by the two
policies that look ahead, `fragmentation` and `fill`.

A GPU is counted in thousandths, as the FGD paper does; what is free of it is the scarcer of its shares and of the
memory that nobody declared. The GPUs of a node are taken to be of one kind, as they are in practice. All nodes are
looked at in one go: 5,000 one after another would take longer than kube-scheduler waits.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_core.placement.base import PlacementQuery, candidate_gpus
from podium_core.placement.gpu_choice import charge_at, chosen_gpus
from podium_core.placement.views import GpuReading, NodeView, PodNeed

WHOLE = 1000
ABSENT = -1  # in place of a GPU that a node has less than another
MIXES_KEPT = 32
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Typical = tuple[tuple[PodNeed, float], ...]


@dataclass(frozen=True, slots=True)
class PodMix:
    """Typical pods on GPUs of one kind, an entry a pod: its part of all, how many GPUs, how much of each (more than
    WHOLE: this product is not wanted), thousandths of CPUs.
    """

    fractions: Floats
    gpus: Ints
    sizes: Ints
    cpus: Ints


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """Free thousandths of each GPU (nodes x GPUs, ABSENT where there is none), and of each node's CPUs (infinite where
    it is not known).
    """

    gpus: Ints
    cpus: Floats


Served = tuple[NDArray[np.bool_], NDArray[np.bool_]]
Loss = Callable[[PodMix, FreeCapacity], Floats]
_mixes: OrderedDict[tuple[int, str, int, int], tuple[Typical, PodMix]] = OrderedDict()


def pod_mix(typical: Typical, gpu: GpuReading) -> PodMix:
    """The very object `typical` comes with every question, so it is known by its identity: comparing takes longer."""
    key = id(typical), *_kind(gpu)
    kept = _mixes.get(key)
    if kept is None or kept[0] is not typical:
        wanted = [(need, part) for need, part in typical if need.gpus > 0]
        mix = PodMix(
            fractions=np.array([part for _, part in wanted], dtype=np.float64),
            gpus=np.array([need.gpus for need, _ in wanted], dtype=np.int64),
            sizes=np.array([_size(need, gpu) for need, _ in wanted], dtype=np.int64),
            cpus=np.array([need.cpu for need, _ in wanted], dtype=np.int64),
        )
        kept = _mixes[key] = typical, mix
        if len(_mixes) > MIXES_KEPT:
            _mixes.popitem(last=False)
    return kept[1]


def loss_growths(question: PlacementQuery, nodes: Sequence[NodeView], loss: Loss) -> list[float | None]:
    """For each node: by how much `loss` grows when the pod is put there, on the GPUs that the device plugin will give
    it. None: too little is known of the node. O(nodes x GPUs x typical pods), in numpy.
    """
    found: list[float | None] = [None] * len(nodes)
    alike: defaultdict[tuple[str, int, int], list[int]] = defaultdict(list)
    for i, node in enumerate(nodes):
        if candidate_gpus(question.need, node) is None:
            continue
        if node.gpus:
            alike[_kind(node.gpus[0])].append(i)
        else:
            found[i] = 0.0
    for rows in alike.values():
        some = [nodes[i] for i in rows]
        mix = pod_mix(question.typical_pods or ((question.need, 1.0),), some[0].gpus[0])
        grown = _growth(question.need, some, mix, loss)
        for i, value in zip(rows, grown.tolist(), strict=True):
            found[i] = value
    return found


def stepped(growth: float | None, steps: int) -> float | None:
    """A growth as a cost in whole steps of a sigmoid, as the authors of FGD round it: nodes that are nearly alike are
    equal, and the first by name is filled before the next is begun. Rounded before: nothing grown is a step's edge, and
    what numpy's sums leave of it depends on how many nodes are looked at together.
    """
    return None if growth is None else -math.floor(steps / (1 + math.exp(round(growth, 9))))


def served(mix: PodMix, left: FreeCapacity) -> Served:
    """For each node and typical pod: which GPUs have room for it (nodes x pods x GPUs), and whether the node as a whole
    has (nodes x pods).
    """
    room = left.gpus[:, np.newaxis, :] >= mix.sizes[:, np.newaxis]
    return room, (room.sum(axis=2) >= mix.gpus) & (mix.cpus <= left.cpus[:, np.newaxis])


def free_part(gpu: GpuReading) -> float:
    """From 0 to 1; nothing of a broken one."""
    if gpu.slots <= 0 or gpu.health == "Unhealthy":
        return 0.0
    shares = (gpu.slots - gpu.trials) / gpu.slots
    memory = (gpu.memory_total - gpu.memory_reserved) / gpu.memory_total if gpu.memory_total > 0 else 1.0
    return max(0.0, min(shares, memory))


def _growth(need: PodNeed, nodes: Sequence[NodeView], mix: PodMix, loss: Loss) -> Floats:
    most = max(len(node.gpus) for node in nodes)
    gpus = np.full((len(nodes), most), ABSENT, dtype=np.int64)
    cpus = np.array([math.inf if node.cpu_free is None else node.cpu_free for node in nodes], dtype=np.float64)
    for row, node in zip(gpus, nodes, strict=True):
        row[: len(node.gpus)] = [_free(gpu) for gpu in node.gpus]
    before = loss(mix, FreeCapacity(gpus, cpus))
    gpus = gpus.copy()
    for row, node in zip(gpus, nodes, strict=True):
        chosen = chosen_gpus(node.gpus, need)
        charged = charge_at(node.gpus, chosen, need)
        for i in chosen:
            row[i] = _free(charged[i])
    grown: Floats = loss(mix, FreeCapacity(gpus, cpus - need.cpu)) - before
    return grown


def _kind(gpu: GpuReading) -> tuple[str, int, int]:
    return gpu.product, gpu.slots, gpu.memory_total


def _size(need: PodNeed, gpu: GpuReading) -> int:
    if need.products and gpu.product not in need.products:
        return WHOLE + 1
    memory = (need.memory or 0) / gpu.memory_total if gpu.memory_total > 0 else 0.0
    return min(WHOLE + 1, math.ceil(WHOLE * max(memory, 1 / gpu.slots if gpu.slots > 0 else 0.0) - 1e-9))


def _free(gpu: GpuReading) -> int:
    return math.floor(WHOLE * free_part(gpu) + 1e-9)
