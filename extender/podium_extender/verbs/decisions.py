"""filter and prioritize as functions of a question and the views of the nodes; `verbs` reads and writes them.

What was found for a node is kept until the node changes: a burst of equal pods on 5,000 nodes looks at each node once.
The answers are those of `fit.refuse` and `scores.score_nodes`, only sooner (a test compares).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TypeVar

from podium_core.placement.base import Policy, Question
from podium_core.placement.fit import FULL, refuse_believed
from podium_core.placement.scores import Ranking, costs_of, favoured, rank
from podium_core.placement.views import NodeView, PodNeed
from podium_extender.state.views import Views
from podium_extender.verbs.node_results import NodeResults

# Whose results are kept; a search has one or two, the openb trace 24. Each takes 2.2 MB at 5,000 nodes, and no time
# until it is asked for; the first pod of a kind that is not kept costs a look at every node.
MAX_POD_KINDS = 32
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_Kind = tuple[str, PodNeed, tuple[tuple[PodNeed, float], ...], str]


@dataclass(frozen=True, slots=True)
class FailedNode:
    """Why a node may not take a pod. `helped`: by preemption. `sentence`: as the scheduler shows it; equal ones are
    counted together, so the node's name stays out of it, and it adds a full stop of its own.
    """

    code: str
    sentence: str
    helped: bool


@dataclass(frozen=True, slots=True)
class FilterDecision:
    """Nodes that may take the pod, in the order asked, and why the others may not."""

    passed: Sequence[str]
    failed: dict[str, FailedNode]


class NodeEvaluator:
    """One policy and one limit of age for a process; `stale_after` in seconds."""

    def __init__(self, policy: Policy, stale_after: float, kinds: int = MAX_POD_KINDS) -> None:
        self.policy = policy
        self._kinds = kinds
        self.stale_after = stale_after
        self._refusals: OrderedDict[PodNeed, NodeResults[FailedNode | None]] = OrderedDict()
        self._costs: OrderedDict[_Kind, NodeResults[float]] = OrderedDict()

    def filter(self, question: Question, names: Sequence[str], views: Views, now: float) -> FilterDecision:
        """Health, product, memory, and for several GPUs whether as many different ones have a free share.

        The number of shares is counted by the scheduler itself, and a filter is no waiting room.
        """
        need = question.need

        def look(nodes: Sequence[NodeView], fresh: Sequence[bool]) -> list[FailedNode | None]:
            told = (refuse_believed(need, node, believed) for node, believed in zip(nodes, fresh, strict=True))
            return [None if refusal is None else refused(refusal.code, refusal.message) for refusal in told]

        results = _kept(self._refusals, self._kinds, need, lambda: NodeResults(look, _is_one, self.stale_after))
        marks = results.marks(names, views, now) > 0
        if not marks.any():
            return FilterDecision(names, {})
        passed = tuple(compress(names, (~marks).tolist()))
        found = {name: results.of(name, views) for name in compress(names, marks.tolist())}
        return FilterDecision(passed, {name: why for name, why in found.items() if why is not None})

    def prioritize(self, question: Question, names: Sequence[str], views: Views, now: float) -> Ranking:
        """A score from 0 to 10 for each node, in the order given, and which of them is to have the pod."""
        policy = self.policy.of(question)
        if question.need.cpu and not policy.reads_cpu:
            question = replace(question, need=replace(question.need, cpu=0))

        def look(nodes: Sequence[NodeView], fresh: Sequence[bool]) -> list[float]:
            costs = costs_of(policy, question, nodes, fresh)
            return [math.nan if cost is None else cost for cost in costs]

        # pods that are alike to the policy
        typical = question.typical if policy.reads_typical else ()
        kind = policy.name, question.need, typical, question.pod if policy.reads_pod else ""
        results = _kept(
            self._costs, self._kinds, kind, lambda: NodeResults(look, float, self.stale_after, policy.reads_cpu)
        )
        return rank(names, results.marks(names, views, now), *favoured(policy, question))

    def precompute(self, views: Views, now: float) -> None:
        """For one more pod of the last kind: nodes that changed are looked at before it comes."""
        _catch_up(self._refusals, views, now)
        _catch_up(self._costs, views, now)


def _is_one(refusal: FailedNode | None) -> float:
    return 0.0 if refusal is None else 1.0


def refused(code: str, message: str) -> FailedNode:
    return FailedNode(code, f"{code}: {message.rstrip('.')}", code in FULL)


def _catch_up(results: OrderedDict[K, NodeResults[T]], views: Views, now: float) -> None:
    if results:
        results[next(reversed(results))].catch_up(views, now)


def _kept(results: OrderedDict[K, NodeResults[T]], most: int, kind: K, make: Callable[[], NodeResults[T]]) -> NodeResults[T]:
    """What was found for pods of this kind; the kind that was asked for longest ago is forgotten first."""
    found = results.get(kind)
    if found is None:
        found = results[kind] = make()
        if len(results) > most:
            results.popitem(last=False)
    results.move_to_end(kind)
    return found
