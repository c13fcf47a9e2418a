"""Policy `fill`: FGD that also estimates how much of a free piece typical pods will fill. The registry lists it.

FGD counts a piece as lost to a pod that does not fit into it, and as fully useful to a pod that does. But a piece of
0.19 that only a rare pod of 0.16 fits is worth little. One of 0.47 that the next frequent pod fills is worth nearly all
of itself. A piece that its node's CPUs cannot serve is worth nothing. The loss is F - WEIGHT * V: the fragments as FGD
counts them, minus what is expected to be filled, both in GPUs.

V alone rejects pods of many GPUs long before the cluster is full, since it values a whole node by the few pods that
need one. F and the coarse steps keep those nodes whole. WEIGHT and STEPS were chosen on openb, on seeds that its
benchmark does not report. The policy needs free CPUs: without them FGD alone is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from podium_core.placement.gpu_fragments import (
    WHOLE,
    Floats,
    FreeCapacity,
    PodMix,
    Served,
    loss_growths,
    served,
    stepped,
)
from podium_core.placement.policies.base import PlacementPolicy, PlacementQuery
from podium_core.placement.policies.fragmentation import fragments_of
from podium_core.placement.views import NodeView

# Mean number of pods that arrive before a piece becomes larger for other reasons. With few, only pieces that nearly
# every pod can use have a value; with infinitely many, every piece has.
OFFERS = 100.0
WEIGHT = 3.0
STEPS = 20


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    """Return the growth of the loss on this node, in steps."""
    return costs(question, [node])[0]


def costs(question: PlacementQuery, nodes: Sequence[NodeView]) -> list[float | None]:
    """Return the growth of the loss on each node, in steps."""
    return [stepped(growth, STEPS) for growth in loss_growths(question, nodes, loss)]


def loss(mix: PodMix, left: FreeCapacity) -> Floats:
    """Return F - WEIGHT * V of each node, in GPUs."""
    usable = served(mix, left)
    return fragments_of(mix, left, usable) - WEIGHT * worth(mix, left, usable)


def worth(mix: PodMix, left: FreeCapacity, serves: Served) -> Floats:
    """Return V: the GPUs of each node that pods drawn from `mix` would fill.

    The value is limited by the CPUs of the node, and averaged over the pods.
    """
    filled = np.append(_fill(tuple(mix.sizes.tolist()), tuple(mix.fractions.tolist())), 0.0)[left.gpus].sum(axis=1)
    _, fits = serves
    cpu_limit = np.full(fits.shape, np.inf)
    uses_cpu = mix.cpus > 0
    gpu_per_cpu = (mix.gpus * mix.sizes)[uses_cpu] / mix.cpus[uses_cpu]  # GPU thousandths for each thousandth of a CPU
    cpu_limit[:, uses_cpu] = np.maximum(left.cpus, 0.0)[:, np.newaxis] * gpu_per_cpu
    usable: Floats = np.where(fits, np.minimum(filled[:, np.newaxis], cpu_limit), 0.0) @ mix.fractions / WHOLE
    return usable


@lru_cache(maxsize=64)
def _fill(sizes: tuple[int, ...], parts: tuple[float, ...]) -> Floats:
    """Return the thousandths expected to be filled in free pieces of 0 to WHOLE thousandths.

    V(x) = (1 - exp(-OFFERS q)) * sum of p_m (m + V(x - m)) / q over the pods m that fit into x; q is the sum of their
    p_m. The first factor is the probability that one of these pods comes. The rest of the piece is filled in the same
    way.
    """
    values = np.zeros(WHOLE + 1)
    by_size: dict[int, float] = {}
    for size, part in zip(sizes, parts, strict=True):
        if 0 < size <= WHOLE:
            by_size[size] = by_size.get(size, 0.0) + part
    for x in range(1, WHOLE + 1):
        fit = [(m, p) for m, p in by_size.items() if m <= x]
        q = sum(p for _, p in fit)
        if q > 0:
            values[x] = -np.expm1(-OFFERS * q) * sum(p * (m + values[x - m]) for m, p in fit) / q
    return values


FILL = PlacementPolicy(
    name="fill",
    summary="the node where free slots remain most useful to recent pods and will be filled",
    cost=cost,
    single_best=True,
    uses_typical_pods=True,
    uses_cpus=True,
    batch_cost=costs,
)
