"""Policy `fragmentation`: FGD, the placement that leaves the least of the GPUs in pieces that typical pods cannot use.

Source: Weng et al., *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent*,
USENIX ATC 2023, with what `pieces` counts as free in place of their part of a GPU. Found in the registry.
"""

from __future__ import annotations

import math

import numpy as np

from podium.placement.base import Policy, Question
from podium.placement.pieces import WHOLE, Left, Mix, best_way, served
from podium.placement.views import NodeView

STEPS = 100


def cost(question: Question, node: NodeView) -> float | None:
    """The growth in a hundred steps, as the authors' scheduler rounds: what is nearly alike then goes to the same
    nodes, by name (openb: 95.2 % of the GPUs allocated, 94.2 % with the exact figure).
    """
    best = place(question, node)
    return None if best is None else -math.floor(STEPS / (1 + math.exp(best[0])))


def place(question: Question, node: NodeView) -> tuple[float, tuple[int, ...]] | None:
    """By how many GPUs the fragments grow at least (negative: they shrink), and on which GPUs of the node that is."""
    return best_way(question, node, fragments)


def fragments(mix: Mix, left: Left) -> float:
    """The free part of the GPUs that a pod drawn from `mix` could not use, in GPUs: F_n(M) of the paper."""
    room, fits = served(mix, left)
    lost = np.where(fits, (~room) @ left.gpus, left.gpus.sum())
    return float(mix.parts @ lost) / WHOLE


FRAGMENTATION = Policy(
    name="fragmentation",
    says="the node where the free shares stay of most use to the pods seen lately (FGD)",
    cost=cost,
    one_best=True,
    reads_typical=True,
    place=place,
)
