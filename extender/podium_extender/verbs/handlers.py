"""The verbs as functions from the body of a request to the body of its answer: everything is answered from memory, no
API call and no wait inside. Called by `app` (the routes) and by `fast_path_protocol` (the connections of kube-scheduler).

kube-scheduler takes anything but 200 as an error of the whole cycle, so 200 is used wherever a pod can be told
something useful (`Error`, `FailedNodes`), 400 for a request that is not the protocol's, 503 while not_ready.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from podium_core.placement.base import Question
from podium_core.placement.needs import TRIAL_LABEL, InvalidPodError, need_of
from podium_core.placement.node_parser import PlacedPod, placed
from podium_core.placement.scores import MIDDLE
from podium_core.placement.views import PodNeed
from podium_core.schema.pod import Pod
from podium_extender.metrics import Metrics
from podium_extender.requeue.unschedulable_queue import UnschedulableQueue
from podium_extender.server.limits import RequestError, parse
from podium_extender.state.node_cache import NodeCache
from podium_extender.state.views import Views
from podium_extender.verbs.decisions import FilterDecision, NodeEvaluator, refused
from podium_extender.verbs.binding_attempts import BindingAttempts
from podium_extender.verbs.node_selection import Selection, select_best, has_soft_preferences
from podium_extender.verbs.preempt import PreemptVerb
from podium_extender.verbs.request import Asked, Reader, write_names
from podium_extender.verbs.response_rows import ResponseRows
from podium_extender.verbs.node_selection import SCORED_NODES
from podium_extender.verbs.wire import FilterResult, NodeList, PreemptArgs

VERBS = ("filter", "prioritize", "preempt")
_NONE_FAILED = b'{"Nodes":null,"NodeNames":%b,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'


class Verbs:
    """`preempt_verb` answers preempt, `waiting` is told which pods every node refused. `scored`: how many nodes filter hands
    on at most, where it may choose (`narrow`).
    """

    def __init__(
        self,
        node_cache: NodeCache,
        metrics: Metrics,
        evaluator: NodeEvaluator,
        preempt_verb: PreemptVerb | None = None,
        waiting: UnschedulableQueue | None = None,
        scored: int = SCORED_NODES,
    ) -> None:
        self._node_cache = node_cache
        self._metrics = metrics
        self._evaluator = evaluator
        self._evicts = preempt_verb or PreemptVerb(node_cache, metrics, evaluator.stale_after)
        self._waiting = waiting
        self._scored = scored
        self._reader = Reader()
        self._rows = ResponseRows()
        self._tried = BindingAttempts()
        self._read: tuple[Pod, PodNeed, PlacedPod] | None = None
        self._handed: tuple[Pod, Selection] | None = None  # what prioritize will ask of, about this pod

    def answer(self, verb: str, body: bytes, began: float) -> bytes:
        """One of VERBS; raises RequestError. `began`: time.perf_counter() when the request's first bytes were there."""
        read = time.perf_counter()
        if verb == "preempt":
            proposal = parse(body, PreemptArgs)
            parsed = time.perf_counter()
            said = self._preempt(proposal)
        else:
            asked = self._reader.read(body)
            parsed = time.perf_counter()
            said = self._filter(asked) if verb == "filter" else self._prioritize(asked)
        self._metrics.answered(verb, began, read, parsed, time.perf_counter())
        return said

    def precompute(self) -> None:
        """Look at the node that the last pod went to: the next question comes soon, and is most often about a pod just
        like it. To be called while kube-scheduler is at work on the answer, for until then it waits.
        """
        if self._node_cache.not_ready() is None:
            self._evaluator.precompute(self._node_cache.views(), self._node_cache.clock())

    def _filter(self, args: Asked) -> bytes:
        if not_ready := self._node_cache.not_ready():
            # reaches the pod's own condition, unlike a status code; the scheduler asks again
            result = FilterResult(error=f"Podium's extender is not ready yet: {not_ready}")
            return result.model_dump_json(by_alias=True).encode()
        return self._filtered(args, self._chosen(args))

    def _chosen(self, args: Asked) -> FilterDecision:
        """What passes; whoever is refused everywhere waits, and where one node is left the pod will be there."""
        node_cache, waiting, now = self._node_cache, self._waiting, self._node_cache.clock()
        try:
            question = self._question(args)
            views = node_cache.views()
            decided = self._evaluator.filter(question, args.names, views, now)
            if waiting is not None:
                name = args.pod.metadata.namespace, args.pod.metadata.name
                if decided.passed:
                    waiting.leaves(name)
                else:
                    waiting.refused(name, question.need, args.names, now)
            left = self._tried.without(question.pod, decided.passed, now)
            decided = replace(decided, passed=self._filter_answers(args, question, left, views, now))
            if len(decided.passed) == 1:  # then there is nothing to score
                self._assume(args, decided.passed[0])
        except InvalidPodError as error:
            decided = FilterDecision((), dict.fromkeys(args.names, refused(error.code, str(error))))
            self._metrics.filter_answers.labels("none").inc()
        for code, count in Counter(why.code for why in decided.failed.values()).items():
            self._metrics.rejections.labels(code).inc(count)
        return decided

    def _filter_answers(
        self, args: Asked, question: Question, passed: Sequence[str], views: Views, now: float
    ) -> Sequence[str]:
        """The best of those that may take it, of which prioritize will be asked, or all of them."""
        found: Selection | None = None
        if not passed:
            why = "none"
        elif len(passed) <= self._scored:
            why = "few"
        elif has_soft_preferences(args.pod, self._node_cache):
            why = "preference"
        else:
            ranking = self._evaluator.prioritize(self._with_cpus(question, args.pod), passed, views, now)
            found = select_best(ranking, passed, views, self._scored, self._node_cache.preferences.shunned)
            why = "best" if found is not None else "no_favourite"
        self._metrics.filter_answers.labels(why).inc()
        self._handed = None if found is None else (args.pod, found)
        return passed if found is None else found.names

    def _filtered(self, args: Asked, decided: FilterDecision) -> bytes:
        if args.listed is not None and len(decided.passed) == len(args.names):
            return _NONE_FAILED % args.listed
        passed = tuple(decided.passed)
        if args.listed is not None:
            listed = write_names(passed)
            self._reader.answered(listed, passed)
            if not decided.failed:
                return _NONE_FAILED % listed
        result = FilterResult(
            nodes=None if args.nodes is None else _only(args.nodes, frozenset(passed)),
            node_names=list(passed) if args.nodes is None else None,
            failed_nodes={name: why.sentence for name, why in decided.failed.items() if why.helped},
            failed_and_unresolvable_nodes={
                name: why.sentence for name, why in decided.failed.items() if not why.helped
            },
        )
        return result.model_dump_json(by_alias=True).encode()

    def _prioritize(self, args: Asked) -> bytes:
        self._warm()
        handed, self._handed = self._handed, None
        if handed is not None and handed[1].names == args.names and handed[0] == args.pod:
            views = self._node_cache.views()
            self._assume(args, handed[1].favourite)
            return self._rows.write(args.names, handed[1].scores, views)
        try:
            question = self._question(args)
        except InvalidPodError:  # filter says why; nothing is better than anything else for such a pod
            return self._rows.write(args.names, np.full(len(args.names), MIDDLE), self._node_cache.views())
        views = self._node_cache.views()
        question = self._with_cpus(question, args.pod)
        ranking = self._evaluator.prioritize(question, args.names, views, self._node_cache.clock())
        if ranking.favourite is not None:
            self._assume(args, args.names[ranking.favourite])
        return self._rows.write(args.names, ranking.scores, views)

    def _preempt(self, args: PreemptArgs) -> bytes:
        if self._node_cache.not_ready():
            self._evicts.park(args, self._node_cache.clock())
        self._warm()
        return self._evicts.answer(args).model_dump_json(by_alias=True).encode()

    def _warm(self) -> None:
        """Whose victims would be named, or which node called idle, is not guessed."""
        if not_ready := self._node_cache.not_ready():
            raise RequestError(503, f"not ready yet: {not_ready}")

    def _assume(self, args: Asked, node: str) -> None:
        """Whole, as the watch will show it: a preemption may name it before its binding is seen."""
        meta = args.pod.metadata
        _, seen = self._of(args.pod)
        self._tried.named(meta.uid, node, self._node_cache.clock())
        self._node_cache.assume((meta.namespace, meta.name), replace(seen, node=node))

    def _question(self, args: Asked) -> Question:
        meta = args.pod.metadata
        self._node_cache.forget_assumption(meta.uid)
        need, _ = self._of(args.pod)
        return Question(need, meta.uid, self._node_cache.typical(), trial=bool(meta.labels.get(TRIAL_LABEL)))

    def _with_cpus(self, question: Question, pod: Pod) -> Question:
        """The same to a policy that counts CPUs, where those of the nodes are known (as of the last `views`)."""
        if not self._node_cache.cpus_known:
            return question
        question = replace(question, cpus=True)
        if not self._evaluator.policy.of(question).reads_cpu:
            return question
        _, seen = self._of(pod)
        return replace(question, need=seen.thirst)

    def _of(self, pod: Pod) -> tuple[PodNeed, PlacedPod]:
        """What it needs, and what the watch will show of it but for the node; both verbs ask of one pod, so it is kept.
        Raises InvalidPodError.
        """
        if self._read is None or self._read[0] is not pod:
            need = need_of(pod)
            self._read = pod, need, placed(pod, need)
        return self._read[1:]


def _only(nodes: NodeList, passed: frozenset[str]) -> NodeList:
    """Full form: answering with names would be zero nodes to the scheduler, without any error."""
    return NodeList(items=[node for node in nodes.items if node.metadata.name in passed])
