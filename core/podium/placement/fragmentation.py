"""Policy `fragmentation`: FGD, the placement that leaves the least of the GPUs in pieces that typical pods cannot use.

Source: Weng et al., *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent*,
USENIX ATC 2023, with what `pieces` counts as free in place of their part of a GPU. Found in the registry.
"""

from __future__ import annotations

import math

import numpy as np

from podium.placement.base import Policy, Question, candidates
from podium.placement.pieces import WHOLE, Left, Mix, left_of, mix_of, outcomes, served
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
    if candidates(question.need, node) is None:
        return None
    if not node.gpus:
        return 0.0, ()
    mix = mix_of(question.typical or ((question.need, 1.0),), node.gpus[0])
    before = left_of(node)
    now = fragments(mix, before)
    ways = ((fragments(mix, after) - now, chosen) for chosen, after in outcomes(question, node, before))
    return min(ways, default=None) or (float(len(node.gpus)), ())  # it fits nowhere


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
