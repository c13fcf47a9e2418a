"""Policy `fill`: FGD that also asks how much of a free piece typical pods will fill in the end. Found in the registry.

FGD counts a piece as lost to a pod that does not fit into it, and as good as new to one that does. But a piece of 0.19
that nothing but a rare pod of 0.16 fits is worth little, one of 0.47 that takes the next frequent pod to the full is
worth nearly all of itself, and what its node's CPUs cannot feed is worth nothing. The loss is F - WEIGHT * V: fragments
as FGD counts them, less what is expected to be filled, both in GPUs.

V alone turns pods of many GPUs away long before the cluster is full, since it tells a whole node by the few that want
one; F and the coarse steps keep those nodes whole. WEIGHT and STEPS were chosen on openb, on seeds that its benchmark
does not report (docs/explanation/placement.md); needs free CPUs: without them FGD alone is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from podium_core.placement.base import PlacementPolicy, PlacementQuery
from podium_core.placement.fragmentation import fragments_of
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
from podium_core.placement.views import NodeView

# Pods that are looked at, on average, before a piece would be free again for other reasons: with few, only what nearly
# every pod can use is worth something; with endless ones, every crumb is.
OFFERS = 100.0
WEIGHT = 3.0
STEPS = 20


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    return costs(question, [node])[0]


def costs(question: PlacementQuery, nodes: Sequence[NodeView]) -> list[float | None]:
    """The growth of the loss, in steps."""
    return [stepped(growth, STEPS) for growth in loss_growths(question, nodes, loss)]


def loss(mix: PodMix, left: FreeCapacity) -> Floats:
    found = served(mix, left)
    return fragments_of(mix, left, found) - WEIGHT * worth(mix, left, found)


def worth(mix: PodMix, left: FreeCapacity, served: Served) -> Floats:
    """V: GPUs of each node that pods drawn from `mix` would fill, each as far as the CPUs last, on average over the
    pods.
    """
    filled = np.append(_fill(tuple(mix.sizes.tolist()), tuple(mix.fractions.tolist())), 0.0)[left.gpus].sum(axis=1)
    _, fits = served
    fed = np.full(fits.shape, np.inf)
    thirsty = mix.cpus > 0
    taken = (mix.gpus * mix.sizes)[thirsty] / mix.cpus[thirsty]  # of GPUs, by each thousandth of a CPU
    fed[:, thirsty] = np.maximum(left.cpus, 0.0)[:, np.newaxis] * taken
    found: Floats = np.where(fits, np.minimum(filled[:, np.newaxis], fed), 0.0) @ mix.fractions / WHOLE
    return found


@lru_cache(maxsize=64)
def _fill(sizes: tuple[int, ...], parts: tuple[float, ...]) -> Floats:
    """Expected thousandths filled of a piece of 0 to WHOLE.

    V(x) = (1 - exp(-OFFERS q)) * sum of p_m (m + V(x - m)) / q over the pods m that fit into x, and q the sum of their
    p_m: one of them comes with this probability, and then the rest of the piece is filled in the same way.
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
    summary="the node where the free shares stay of most use to the pods seen lately, and are filled in the end",
    cost=cost,
    single_best=True,
    uses_typical_pods=True,
    uses_cpus=True,
    batch_cost=costs,
)
