"""filter and prioritize as functions of a question and the views of the nodes; `app` puts them behind HTTP.

What was found for a node is kept until the node changes: a burst of equal pods on 5,000 nodes looks at each node once.
The answers are those of `fit.refuse` and `scores.score_nodes`, only sooner (a test compares).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from podium.placement.base import Policy, Question
from podium.placement.fit import refuse
from podium.placement.scores import cost_of, scale
from podium.placement.views import CLOCK_SKEW, GpuReading, NodeView, PodNeed, Refusal

# Memory that is taken may be given back by deleting a pod; a product, a broken GPU or a GPU that is too small may not.
HELPED_BY_PREEMPTION = frozenset({"MemoryReserved", "NoFreeShare"})
KINDS_OF_PODS = 16  # whose findings are kept; a search has one or two


@dataclass(frozen=True, slots=True)
class Filtered:
    """Nodes that may take the pod, in the order asked, and why the others may not."""

    passed: tuple[str, ...]
    failed: dict[str, Refusal]
    unresolvable: dict[str, Refusal]


@dataclass(frozen=True, slots=True)
class _Found:
    """For the same `gpus` (the very object: telemetry makes a new one for any change) and the same freshness."""

    gpus: tuple[GpuReading, ...]
    freshness: int
    refusal: Refusal | None
    cost: float | None


_NOTHING = _Found((), -1, None, None)
_Kind = tuple[PodNeed, tuple[tuple[PodNeed, float], ...], str]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The last one of a verb. `until`: when the freshness of a node changes by time alone."""

    kind: _Kind
    nodes: Sequence[NodeView]
    found: list[_Found]
    since: float
    until: float


class Judge:
    """One policy and one limit of age for a process; `stale_after` in seconds."""

    def __init__(self, policy: Policy, stale_after: float) -> None:
        self.policy = policy
        self.stale_after = stale_after
        self._kept: OrderedDict[_Kind, dict[str, _Found]] = OrderedDict()
        self._last: dict[str, _Answer] = {}  # by verb

    def filter(self, question: Question, nodes: Sequence[NodeView], now: float) -> Filtered:
        """Health, product, memory, and for several GPUs whether as many different ones have a free share.

        The number of shares is counted by the scheduler itself, and a filter is no waiting room.
        """
        found = self._find("filter", question, nodes, now)
        passed = tuple([node.name for node, one in zip(nodes, found, strict=True) if one.refusal is None])
        failed: dict[str, Refusal] = {}
        unresolvable: dict[str, Refusal] = {}
        if len(passed) < len(nodes):
            for node, one in zip(nodes, found, strict=True):
                if one.refusal is not None:
                    helped = one.refusal.code in HELPED_BY_PREEMPTION
                    (failed if helped else unresolvable)[node.name] = one.refusal
        return Filtered(passed, failed, unresolvable)

    def prioritize(self, question: Question, nodes: Sequence[NodeView], now: float) -> list[int]:
        """A score from 0 to 10 for each node, in the order given."""
        costs = [found.cost for found in self._find("prioritize", question, nodes, now)]
        return scale([node.name for node in nodes], costs, self.policy.one_best)

    def _find(self, verb: str, question: Question, nodes: Sequence[NodeView], now: float) -> list[_Found]:
        """What is known of each node, from the last answer but for the nodes that changed since."""
        kind = self._kind(question)
        kept = self._kept_for(kind)
        last = self._last.get(verb)
        if last is None or last.kind != kind or len(last.nodes) != len(nodes) or not last.since <= now < last.until:
            changed: Sequence[int] = range(len(nodes))
            found: list[_Found] = [_NOTHING] * len(nodes)
            until = math.inf
        else:
            changed = [i for i, (node, old) in enumerate(zip(nodes, last.nodes, strict=True)) if node is not old]
            found, until = last.found.copy(), last.until
        for i in changed:
            node = nodes[i]
            freshness = self._freshness(node, now)
            one = kept.get(node.name)
            if one is None or one.gpus is not node.gpus or one.freshness != freshness:
                one = kept[node.name] = self._look(question, node, freshness, now)
            found[i] = one
            until = min(until, self._holds_until(node, now))
        self._last[verb] = _Answer(kind, nodes, found, now, until)
        return found

    def _freshness(self, node: NodeView, now: float) -> int:
        """0 never heard, 1 stale, 2 fresh."""
        return 0 if node.reported_at is None else 1 if node.stale(now, self.stale_after) else 2

    def _holds_until(self, node: NodeView, now: float) -> float:
        """When its freshness changes although nothing new is heard: it grows stale, or its clock's time comes."""
        heard = node.reported_at
        if heard is None or (heard <= now and node.stale(now, self.stale_after)):
            return math.inf
        return heard - CLOCK_SKEW if node.stale(now, self.stale_after) else heard + self.stale_after

    def _look(self, question: Question, node: NodeView, freshness: int, now: float) -> _Found:
        refusal = refuse(question.need, node, now, self.stale_after)
        return _Found(node.gpus, freshness, refusal, cost_of(self.policy, question, node, freshness == 2))

    def _kind(self, question: Question) -> _Kind:
        """Pods that are alike to the policy."""
        typical = question.typical if self.policy.reads_typical else ()
        return question.need, typical, question.pod if self.policy.reads_pod else ""

    def _kept_for(self, kind: _Kind) -> dict[str, _Found]:
        """What was found for pods of this kind; the kind that was asked for longest ago is forgotten first."""
        kept = self._kept.setdefault(kind, {})
        self._kept.move_to_end(kind)
        if len(self._kept) > KINDS_OF_PODS:
            self._kept.popitem(last=False)
        return kept
