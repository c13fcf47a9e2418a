"""Free pieces of the nodes' GPUs and which typical pods could use them, as arrays with one row for each node.

The policies that look ahead, `fragmentation` and `fill`, use them. A GPU is counted in thousandths, as in the FGD
paper. Its free part is the smaller of its free slots and its undeclared memory. The GPUs of a node are assumed to be of
one kind, as they are in practice. All nodes are processed at once: one after another, 5,000 nodes would take longer
than kube-scheduler waits.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_core.domain.gpu_fit import is_wanted
from podium_core.placement.gpu_choice import charge_at, chosen_gpus
from podium_core.placement.policies.base import PlacementQuery, candidate_gpus
from podium_core.placement.views import GpuReading, NodeView, PodNeed

WHOLE = 1000
ABSENT = -1  # stands for a GPU that a node has less than another one
MIXES_KEPT = 32
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Typical = tuple[tuple[PodNeed, float], ...]


@dataclass(frozen=True, slots=True)
class PodMix:
    """Typical pods on GPUs of one kind, one entry for each pod.

    `fractions`: fraction of all pods. `gpus`: number of GPUs. `sizes`: thousandths of each GPU (more than WHOLE: the
    pod does not accept this product). `cpus`: thousandths of CPUs.
    """

    fractions: Floats
    gpus: Ints
    sizes: Ints
    cpus: Ints


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """Free thousandths of each GPU and of each node's CPUs.

    `gpus` has the shape nodes x GPUs, with ABSENT for a missing GPU. `cpus` is infinite if it is not known.
    """

    gpus: Ints
    cpus: Floats


Served = tuple[NDArray[np.bool_], NDArray[np.bool_]]
Loss = Callable[[PodMix, FreeCapacity], Floats]
_mixes: OrderedDict[tuple[int, str, int, int], tuple[Typical, PodMix]] = OrderedDict()


def pod_mix(typical: Typical, gpu: GpuReading) -> PodMix:
    """Return the typical pods as arrays for GPUs of this kind.

    Every query carries the same object `typical`, so the cache compares identities, which is faster than comparing
    values.
    """
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
    """Return for each node how much `loss` grows if the pod is placed there.

    The device plugin chooses the GPUs. None: too little is known of the node. O(nodes x GPUs x typical pods), in numpy.
    """
    growths: list[float | None] = [None] * len(nodes)
    by_kind: defaultdict[tuple[str, int, int], list[int]] = defaultdict(list)
    for i, node in enumerate(nodes):
        if candidate_gpus(question.need, node) is None:
            continue
        if node.gpus:
            by_kind[_kind(node.gpus[0])].append(i)
        else:
            growths[i] = 0.0
    for rows in by_kind.values():
        some = [nodes[i] for i in rows]
        mix = pod_mix(question.typical_pods or ((question.need, 1.0),), some[0].gpus[0])
        growth = _growth(question.need, some, mix, loss)
        for i, value in zip(rows, growth.tolist(), strict=True):
            growths[i] = value
    return growths


def stepped(growth: float | None, steps: int) -> float | None:
    """Return a growth as a cost in whole steps of a sigmoid, as the authors of FGD round it.

    Nodes that are nearly equal get equal costs, so the first by name is filled before the next one. The growth is
    rounded before: zero growth is the edge of a step, and the rounding error of numpy's sums depends on the number of
    nodes.
    """
    return None if growth is None else -math.floor(steps / (1 + math.exp(round(growth, 9))))


def served(mix: PodMix, left: FreeCapacity) -> Served:
    """Return which GPUs have room for each typical pod, and which nodes as a whole have.

    The shapes are nodes x pods x GPUs and nodes x pods.
    """
    fits_gpu = left.gpus[:, np.newaxis, :] >= mix.sizes[:, np.newaxis]
    return fits_gpu, (fits_gpu.sum(axis=2) >= mix.gpus) & (mix.cpus <= left.cpus[:, np.newaxis])


def free_part(gpu: GpuReading) -> float:
    """Return the free part of a GPU, from 0 to 1; 0 for an unhealthy one."""
    if gpu.slots <= 0 or gpu.health == "Unhealthy":
        return 0.0
    slots = (gpu.slots - gpu.trials) / gpu.slots
    memory = (gpu.memory_total - gpu.memory.reserved) / gpu.memory_total if gpu.memory_total > 0 else 1.0
    return max(0.0, min(slots, memory))


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
    growth: Floats = loss(mix, FreeCapacity(gpus, cpus - need.cpu)) - before
    return growth


def _kind(gpu: GpuReading) -> tuple[str, int, int]:
    return gpu.product, gpu.slots, gpu.memory_total


def _size(need: PodNeed, gpu: GpuReading) -> int:
    if not is_wanted(gpu.product, need.products):
        return WHOLE + 1
    memory = (need.memory or 0) / gpu.memory_total if gpu.memory_total > 0 else 0.0
    return min(WHOLE + 1, math.ceil(WHOLE * max(memory, 1 / gpu.slots if gpu.slots > 0 else 0.0) - 1e-9))


def _free(gpu: GpuReading) -> int:
    return math.floor(WHOLE * free_part(gpu) + 1e-9)
