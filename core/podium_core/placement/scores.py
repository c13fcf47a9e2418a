"""Scores from costs: 0 to 10 for each node, over the whole scale.

So they count beside kube-scheduler's own scores.

The extender's prioritize and `podium explain pod` call it. An unknown node scores 5 of 10: it is treated neither as
idle nor as full. The order of the nodes does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from podium_core.placement.fit import STALE_AFTER, refuse
from podium_core.placement.policies.base import PlacementPolicy, PlacementQuery
from podium_core.placement.policies.load_balance import LOAD_BALANCE
from podium_core.placement.views import NodeScore, NodeView, PodNeed

__all__ = [
    "HIGHEST",
    "MIDDLE",
    "STALE_AFTER",
    "NodeRanking",
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
class NodeRanking:
    """Scores of nodes.

    `scores`: 0 to 10, one for each node. `costs`: the costs behind the scores. `favourite`: the index of the node with
    the highest score, if one is singled out on purpose. The extender assumes the pod there until it learns otherwise.
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
    """Return one score for each node, in the given order, with a sentence that explains it."""
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
    """Return the cost of each node; None if the policy needs telemetry and has no fresh one."""
    known = [i for i, believed in enumerate(fresh) if believed or not policy.uses_telemetry]
    costs: list[float | None] = [None] * len(nodes)
    for i, cost in zip(known, policy.costs(question, [nodes[i] for i in known]), strict=True):
        costs[i] = cost
    return costs


def has_single_best(policy: PlacementPolicy, need: PodNeed) -> bool:
    """Return whether exactly one node is to have the highest score.

    Random choice among equal scores spoils packing (FGD on openb: 95 % of the GPUs allocated, 90 % with random ties),
    and the extender could not predict where the pod goes. A pod without GPUs changes no cost, so a balancing policy
    singles out no node for it.
    """
    return policy.single_best or need.gpus > 0


def tie_break(policy: PlacementPolicy, question: PlacementQuery) -> tuple[bool, str]:
    """Return the last two arguments of `rank` for this pod.

    An exclusive pod uses no slot and so changes no cost: many such pods would all go to the same node. So a balancing
    policy orders equal nodes differently for each exclusive pod.
    """
    own = question.need.exclusive and not policy.single_best
    return has_single_best(policy, question.need), question.pod if own else ""


def rank(names: Sequence[str], costs: NDArray[np.float64], favourite: bool, pod: str = "") -> NodeRanking:
    """Return the scores: 10 for the least cost, 0 for the highest, and linear in between.

    Equal or unknown (NaN) costs give 5. With `favourite`, the first node of the least cost scores one above all other
    known ones. The first is that by name, or in the order of a hash with `pod`, a UID. `costs`: one for each name.
    """
    unknown = np.isnan(costs)
    known = costs[~unknown] if unknown.any() else costs
    if not len(known):
        return NodeRanking(np.full(len(names), MIDDLE), costs)
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
    return NodeRanking(values, costs, best)


def _own_order(names: Sequence[str], pod: str) -> Callable[[int], tuple[int, str]]:
    seed = crc32(pod.encode())
    return lambda i: (crc32(names[i].encode(), seed), names[i])


def load_balance(
    need: PodNeed, nodes: Sequence[NodeView], now: float, stale_after: float = STALE_AFTER
) -> tuple[NodeScore, ...]:
    """Return `score_nodes` with the default policy of trials."""
    return score_nodes(LOAD_BALANCE, PlacementQuery(need), nodes, now, stale_after)


def _why(cost: float | None, low: float, high: float) -> str:
    if cost is None:
        return "Too little recent telemetry of healthy GPUs: the middle score."
    if high - low <= _ALIKE:
        return f"Cost {cost:.2f}, equal to all other nodes."
    return f"Cost {cost:.2f}; the nodes range from {low:.2f} to {high:.2f}."
