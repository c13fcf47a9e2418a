"""From costs to scores: 0 to 10 for each node, spread over the whole scale, so that they weigh against the scores of
kube-scheduler's own plugins.

Called by the extender's prioritize and by `podium explain pod`. A node that nothing is known of gets the middle: never
taken for idle, never for full. The order in which nodes are given changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from podium_core.placement.base import PlacementPolicy, PlacementQuery
from podium_core.placement.fit import STALE_AFTER, refuse
from podium_core.placement.load_balance import LOAD_BALANCE
from podium_core.placement.views import NodeScore, NodeView, PodNeed

__all__ = [
    "HIGHEST",
    "MIDDLE",
    "STALE_AFTER",
    "Ranking",
    "has_single_best",
    "load_balance",
    "rank",
    "refuse",
    "score_nodes",
    "tie_break",
]

HIGHEST = 10  # kube-scheduler's MaxExtenderPriority
MIDDLE = 5
_ALIKE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """`scores`: 0 to 10, one a node. `favourite`: the place of the one with the highest score, if there is just one by
    intention; the extender takes it for where the pod will be until it knows better. `costs`: what the scores are of.
    """

    scores: NDArray[np.int64]
    costs: NDArray[np.float64]
    favourite: int | None = None


def score_nodes(
    policy: PlacementPolicy,
    question: PlacementQuery,
    nodes: Sequence[NodeView],
    now: float,
    stale_after: float = STALE_AFTER,
) -> tuple[NodeScore, ...]:
    """One score for each node, in the order given, with the sentence that says why."""
    policy = policy.resolve(question)
    costs = costs_of(policy, question, nodes, [not node.stale(now, stale_after) for node in nodes])
    known_or_nan = np.array([math.nan if cost is None else cost for cost in costs], dtype=np.float64)
    values = rank([node.name for node in nodes], known_or_nan, *tie_break(policy, question)).scores.tolist()
    known = [cost for cost in costs if cost is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return tuple(
        NodeScore(node.name, value, _why(cost, low, high))
        for node, value, cost in zip(nodes, values, costs, strict=True)
    )


def costs_of(
    policy: PlacementPolicy, question: PlacementQuery, nodes: Sequence[NodeView], fresh: Sequence[bool]
) -> list[float | None]:
    """None where the policy needs telemetry and there is none that is fresh."""
    known = [i for i, believed in enumerate(fresh) if believed or not policy.uses_telemetry]
    costs: list[float | None] = [None] * len(nodes)
    for i, cost in zip(known, policy.costs(question, [nodes[i] for i in known]), strict=True):
        costs[i] = cost
    return costs


def has_single_best(policy: PlacementPolicy, need: PodNeed) -> bool:
    """Whether one node is to stand alone at the top. Chance between equal scores spoils a packing (FGD on openb: 95 %
    of the GPUs allocated, 90 % with random ties; shared research, scheduling-theory.md 3.2 A), and the extender could
    not tell where the pod goes. A pod that asks for no GPU changes no cost, so a balancing policy has none for it.
    """
    return policy.single_best or need.gpus > 0


def tie_break(policy: PlacementPolicy, question: PlacementQuery) -> tuple[bool, str]:
    """The last two arguments of `rank` for this pod. One with GPUs for itself takes no share and so changes no cost: of
    many such pods all would go to the same node, so a balancing policy takes equal nodes in an order of each pod's own.
    """
    own = question.need.exclusive and not policy.single_best
    return has_single_best(policy, question.need), question.pod if own else ""


def rank(names: Sequence[str], costs: NDArray[np.float64], favourite: bool, pod: str = "") -> Ranking:
    """Least cost 10, highest 0, in between in a straight line; alike or unknown (nan) 5. With `favourite` the first of
    the least costs is one above all others that are known: by name, or in the order that belongs to `pod`, a uid.
    `costs`: one a name.
    """
    unknown = np.isnan(costs)
    known = costs[~unknown] if unknown.any() else costs
    if not len(known):
        return Ranking(np.full(len(names), MIDDLE), costs)
    low, high = float(known.min()), float(known.max())
    alike = high - low <= _ALIKE
    if alike:
        values = np.full(len(names), MIDDLE)
    else:
        scaled = np.rint((high - costs) * (HIGHEST / (high - low)))
        values = np.where(unknown, MIDDLE, scaled).astype(np.int64)
    best = None
    if favourite:
        least = np.flatnonzero(costs - low <= _ALIKE).tolist()
        best = min(least, key=_own_order(names, pod) if pod else names.__getitem__)
        top = MIDDLE + 1 if alike else HIGHEST
        np.minimum(values, top - 1, out=values)
        values[best] = top
    return Ranking(values, costs, best)


def _own_order(names: Sequence[str], pod: str) -> Callable[[int], tuple[int, str]]:
    seed = crc32(pod.encode())
    return lambda i: (crc32(names[i].encode(), seed), names[i])


def load_balance(
    need: PodNeed, nodes: Sequence[NodeView], now: float, stale_after: float = STALE_AFTER
) -> tuple[NodeScore, ...]:
    """`score_nodes` as trials are scored by default."""
    return score_nodes(LOAD_BALANCE, PlacementQuery(need), nodes, now, stale_after)


def _why(cost: float | None, low: float, high: float) -> str:
    if cost is None:
        return "Nothing recent is known of enough healthy GPUs: the middle."
    if high - low <= _ALIKE:
        return f"Cost {cost:.2f}, like every other node."
    return f"Cost {cost:.2f}; the nodes range from {low:.2f} to {high:.2f}."
