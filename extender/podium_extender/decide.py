"""filter and prioritize as functions of a question and the views of the nodes; `app` puts them behind HTTP.

What was found for a node is kept until the node changes: a burst of equal pods on 5,000 nodes looks at each node once.
The answers are those of `fit.refuse` and `scores.score_nodes`, only sooner (a test compares).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from podium.placement.base import Policy, Question
from podium.placement.fit import refuse
from podium.placement.scores import cost_of, scale
from podium.placement.views import GpuReading, NodeView, Refusal

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


class Judge:
    """One policy and one limit of age for a process; `stale_after` in seconds."""

    def __init__(self, policy: Policy, stale_after: float) -> None:
        self.policy = policy
        self.stale_after = stale_after
        self._kept: OrderedDict[object, dict[str, _Found]] = OrderedDict()

    def filter(self, question: Question, nodes: Sequence[NodeView], now: float) -> Filtered:
        """Health, product, memory, and for several GPUs whether as many different ones have a free share.

        The number of shares is counted by the scheduler itself, and a filter is no waiting room.
        """
        passed: list[str] = []
        failed: dict[str, Refusal] = {}
        unresolvable: dict[str, Refusal] = {}
        for node, found in zip(nodes, self._find(question, nodes, now), strict=True):
            refusal = found.refusal
            if refusal is None:
                passed.append(node.name)
            elif refusal.code in HELPED_BY_PREEMPTION:
                failed[node.name] = refusal
            else:
                unresolvable[node.name] = refusal
        return Filtered(tuple(passed), failed, unresolvable)

    def prioritize(self, question: Question, nodes: Sequence[NodeView], now: float) -> list[int]:
        """A score from 0 to 10 for each node, in the order given."""
        costs = [found.cost for found in self._find(question, nodes, now)]
        return scale([node.name for node in nodes], costs, self.policy.one_best)

    def _find(self, question: Question, nodes: Sequence[NodeView], now: float) -> list[_Found]:
        kept = self._kept_for(question)
        oldest = now - self.stale_after
        found: list[_Found] = []
        for node in nodes:
            heard = node.reported_at
            # 0 never heard, 1 stale, 2 fresh; a time that is still to come is rare enough to be asked for properly
            freshness = (
                0 if heard is None else 2 if oldest <= heard <= now else 1 + (not node.stale(now, self.stale_after))
            )
            one = kept.get(node.name)
            if one is None or one.gpus is not node.gpus or one.freshness != freshness:
                one = kept[node.name] = self._look(question, node, freshness, now)
            found.append(one)
        return found

    def _look(self, question: Question, node: NodeView, freshness: int, now: float) -> _Found:
        refusal = refuse(question.need, node, now, self.stale_after)
        return _Found(node.gpus, freshness, refusal, cost_of(self.policy, question, node, freshness == 2))

    def _kept_for(self, question: Question) -> dict[str, _Found]:
        """What was found for pods of this kind; the kind that was asked for longest ago is forgotten first."""
        typical = question.typical if self.policy.reads_typical else ()
        kind = (question.need, typical, question.pod if self.policy.reads_pod else "")
        kept = self._kept.setdefault(kind, {})
        self._kept.move_to_end(kind)
        if len(self._kept) > KINDS_OF_PODS:
            self._kept.popitem(last=False)
        return kept
