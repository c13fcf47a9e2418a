"""filter and prioritize as functions of a query and the views of the nodes.

A result for a node is kept until the node changes. A burst of equal pods on 5,000 nodes thus evaluates each node once.
The results equal those of `fit.refuse` and `scores.score_nodes` (a test compares them).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TypeVar

from podium_core.placement.fit import FULL, refuse_with_freshness
from podium_core.placement.policies.base import PlacementPolicy, PlacementQuery
from podium_core.placement.scores import NodeRanking, costs_of, rank, tie_break
from podium_core.placement.views import NodeView, PodNeed
from podium_extender.state.views import Views
from podium_extender.verbs.node_results import NodeResults

# Kinds of pods whose results are kept. A search has one or two, the openb trace has 24. Each takes 2.2 MB at 5,000
# nodes and no time until it is used. The first pod of a kind that is not kept needs an evaluation of every node.
MAX_POD_KINDS = 32
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_Kind = tuple[str, PodNeed, tuple[tuple[PodNeed, float], ...], str]


@dataclass(frozen=True, slots=True)
class FailedNode:
    """Reason why a node cannot run a pod.

    `resolvable` states whether preemption may help. The scheduler shows `message`, counts equal messages together and
    adds a full stop; therefore the message contains neither the node's name nor a full stop.
    """

    code: str
    message: str
    resolvable: bool


@dataclass(frozen=True, slots=True)
class FilterDecision:
    """Nodes that can run the pod, in the order of the request, and why the others cannot."""

    passed: Sequence[str]
    failed: dict[str, FailedNode]


class NodeEvaluator:
    """filter and prioritize with one placement policy.

    Data older than `stale_after` seconds is not trusted. Results are kept for `max_kinds` kinds of pods.
    """

    def __init__(self, policy: PlacementPolicy, stale_after: float, max_kinds: int = MAX_POD_KINDS) -> None:
        self.policy = policy
        self._max_kinds = max_kinds
        self.stale_after = stale_after
        self._refusals: OrderedDict[PodNeed, NodeResults[FailedNode | None]] = OrderedDict()
        self._costs: OrderedDict[_Kind, NodeResults[float]] = OrderedDict()

    def filter(self, need: PodNeed, names: Sequence[str], views: Views, now: float) -> FilterDecision:
        """Check GPU health, product and memory, and for several GPUs the number of GPUs with a free slot.

        kube-scheduler itself counts the free slots of a node.
        """

        def evaluate(nodes: Sequence[NodeView], fresh: Sequence[bool]) -> list[FailedNode | None]:
            refusals = (
                refuse_with_freshness(need, node, is_fresh) for node, is_fresh in zip(nodes, fresh, strict=True)
            )
            return [None if refusal is None else failed_node(refusal.code, refusal.message) for refusal in refusals]

        results = _kept(
            self._refusals, self._max_kinds, need, lambda: NodeResults(evaluate, _as_number, self.stale_after)
        )
        failed = results.numbers(names, views, now) > 0
        if not failed.any():
            return FilterDecision(names, {})
        passed = tuple(compress(names, (~failed).tolist()))
        reasons = {name: results.result(name, views) for name in compress(names, failed.tolist())}
        return FilterDecision(passed, {name: reason for name, reason in reasons.items() if reason is not None})

    def prioritize(self, query: PlacementQuery, names: Sequence[str], views: Views, now: float) -> NodeRanking:
        """Score each node from 0 to 10, in the order given, and choose the one that should get the pod.

        The pod's CPU request is left out if the policy's costs do not depend on CPUs: more pods then share results.
        """
        policy = self.policy.resolve(query)
        if query.need.cpu and not policy.uses_cpus:
            query = replace(query, need=replace(query.need, cpu=0))

        def evaluate(nodes: Sequence[NodeView], fresh: Sequence[bool]) -> list[float]:
            costs = costs_of(policy, query, nodes, fresh)
            return [math.nan if cost is None else cost for cost in costs]

        # everything about the pod that the policy uses
        typical = query.typical_pods if policy.uses_typical_pods else ()
        kind = policy.name, query.need, typical, query.pod if policy.uses_pod_uid else ""
        results = _kept(
            self._costs,
            self._max_kinds,
            kind,
            lambda: NodeResults(evaluate, float, self.stale_after, policy.uses_cpus),
        )
        return rank(names, results.numbers(names, views, now), *tie_break(policy, query))

    def precompute(self, views: Views, now: float) -> None:
        """Evaluate the changed nodes in advance, for the next pod of the same kind as the last one."""
        _update_last(self._refusals, views, now)
        _update_last(self._costs, views, now)


def _as_number(failed: FailedNode | None) -> float:
    return 0.0 if failed is None else 1.0


def failed_node(code: str, message: str) -> FailedNode:
    """Return the failure of a node for a refusal's code and message."""
    return FailedNode(code, f"{code}: {message.rstrip('.')}", code in FULL)


def _update_last(results: OrderedDict[K, NodeResults[T]], views: Views, now: float) -> None:
    if results:
        results[next(reversed(results))].update(views, now)


def _kept(
    results: OrderedDict[K, NodeResults[T]], limit: int, kind: K, make: Callable[[], NodeResults[T]]
) -> NodeResults[T]:
    """Return the results for pods of this kind; above `limit` kinds the least recently used one is dropped."""
    kept = results.get(kind)
    if kept is None:
        kept = results[kind] = make()
        if len(results) > limit:
            results.popitem(last=False)
    results.move_to_end(kind)
    return kept
