"""Policy `fragmentation`: fragmentation gradient descent (FGD). The registry lists it.

It chooses the node that leaves the smallest part of the GPUs in pieces that typical pods cannot use. Source: Weng et
al., *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent*, USENIX ATC 2023.
`gpu_fragments` defines what is free of a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from podium_core.placement.views import NodeView

STEPS = 100  # openb: 95.2 % of the GPUs allocated, 94.4 % with the exact figure


def cost(question: PlacementQuery, node: NodeView) -> float | None:
    """Return the growth of the node's fragments, in steps."""
    return costs(question, [node])[0]


def costs(question: PlacementQuery, nodes: Sequence[NodeView]) -> list[float | None]:
    """Return the growth of each node's fragments, in GPUs and in STEPS steps; negative if they shrink."""
    return [stepped(growth, STEPS) for growth in loss_growths(question, nodes, fragments)]


def fragments(mix: PodMix, left: FreeCapacity) -> Floats:
    """Return the free part of each node's GPUs that a pod drawn from `mix` could not use, in GPUs.

    F_n(M) of the paper.
    """
    return fragments_of(mix, left, served(mix, left))


def fragments_of(mix: PodMix, left: FreeCapacity, serves: Served) -> Floats:
    """Return `fragments` for a mix whose `serves` is known."""
    usable, fits = serves
    free = np.maximum(left.gpus, 0)
    pieces = np.where(usable, 0, free[:, np.newaxis, :]).sum(axis=2)
    lost: Floats = np.where(fits, pieces, free.sum(axis=1)[:, np.newaxis]) @ mix.fractions / WHOLE
    return lost


FRAGMENTATION = PlacementPolicy(
    name="fragmentation",
    summary="the node where free slots remain most useful to recent pods (FGD)",
    cost=cost,
    single_best=True,
    uses_typical_pods=True,
    uses_cpus=True,
    batch_cost=costs,
)
