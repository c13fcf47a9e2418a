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

from podium_core.placement.base import PlacementPolicy, PlacementQuery
from podium_core.placement.fit import FULL, refuse_with_freshness
from podium_core.placement.scores import Ranking, costs_of, rank, tie_break
from podium_core.placement.views import NodeView, PodNeed
from podium_extender.state.views import Views
from podium_extender.verbs.node_results import Findings

# Whose findings are kept; a search has one or two, the openb trace 24. Each takes 2.2 MB at 5,000 nodes, and no time
# until it is asked for; the first pod of a kind that is not kept costs a look at every node.
KINDS_OF_PODS = 32
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_Kind = tuple[str, PodNeed, tuple[tuple[PodNeed, float], ...], str]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a node may not take a pod. `helped`: by preemption. `sentence`: as the scheduler shows it; equal ones are
    counted together, so the node's name stays out of it, and it adds a full stop of its own.
    """

    code: str
    sentence: str
    helped: bool


@dataclass(frozen=True, slots=True)
class Filtered:
    """Nodes that may take the pod, in the order asked, and why the others may not."""

    passed: Sequence[str]
    failed: dict[str, Refused]


class Judge:
    """One policy and one limit of age for a process; `stale_after` in seconds."""

    def __init__(self, policy: PlacementPolicy, stale_after: float, kinds: int = KINDS_OF_PODS) -> None:
        self.policy = policy
        self._kinds = kinds
        self.stale_after = stale_after
        self._refusals: OrderedDict[PodNeed, Findings[Refused | None]] = OrderedDict()
        self._costs: OrderedDict[_Kind, Findings[float]] = OrderedDict()

    def filter(self, question: PlacementQuery, names: Sequence[str], views: Views, now: float) -> Filtered:
        """Health, product, memory, and for several GPUs whether as many different ones have a free share.

        The number of shares is counted by the scheduler itself, and a filter is no waiting room.
        """
        need = question.need

        def look(nodes: Sequence[NodeView], fresh: Sequence[bool]) -> list[Refused | None]:
            told = (refuse_with_freshness(need, node, believed) for node, believed in zip(nodes, fresh, strict=True))
            return [None if refusal is None else refused(refusal.code, refusal.message) for refusal in told]

        findings = _kept(self._refusals, self._kinds, need, lambda: Findings(look, _is_one, self.stale_after))
        marks = findings.marks(names, views, now) > 0
        if not marks.any():
            return Filtered(names, {})
        passed = tuple(compress(names, (~marks).tolist()))
        found = {name: findings.of(name, views) for name in compress(names, marks.tolist())}
        return Filtered(passed, {name: why for name, why in found.items() if why is not None})

    def prioritize(self, question: PlacementQuery, names: Sequence[str], views: Views, now: float) -> Ranking:
        """A score from 0 to 10 for each node, in the order given, and which of them is to have the pod."""
        policy = self.policy.resolve(question)
        if question.need.cpu and not policy.uses_cpus:
            question = replace(question, need=replace(question.need, cpu=0))

        def look(nodes: Sequence[NodeView], fresh: Sequence[bool]) -> list[float]:
            costs = costs_of(policy, question, nodes, fresh)
            return [math.nan if cost is None else cost for cost in costs]

        # pods that are alike to the policy
        typical = question.typical_pods if policy.uses_typical_pods else ()
        kind = policy.name, question.need, typical, question.pod if policy.uses_pod_uid else ""
        findings = _kept(
            self._costs, self._kinds, kind, lambda: Findings(look, float, self.stale_after, policy.uses_cpus)
        )
        return rank(names, findings.marks(names, views, now), *tie_break(policy, question))

    def get_ready(self, views: Views, now: float) -> None:
        """For one more pod of the last kind: nodes that changed are looked at before it comes."""
        _catch_up(self._refusals, views, now)
        _catch_up(self._costs, views, now)


def _is_one(refusal: Refused | None) -> float:
    return 0.0 if refusal is None else 1.0


def refused(code: str, message: str) -> Refused:
    return Refused(code, f"{code}: {message.rstrip('.')}", code in FULL)


def _catch_up(findings: OrderedDict[K, Findings[T]], views: Views, now: float) -> None:
    if findings:
        findings[next(reversed(findings))].catch_up(views, now)


def _kept(findings: OrderedDict[K, Findings[T]], most: int, kind: K, make: Callable[[], Findings[T]]) -> Findings[T]:
    """What was found for pods of this kind; the kind that was asked for longest ago is forgotten first."""
    found = findings.get(kind)
    if found is None:
        found = findings[kind] = make()
        if len(findings) > most:
            findings.popitem(last=False)
    findings.move_to_end(kind)
    return found
