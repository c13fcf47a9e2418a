"""The verbs as functions from the body of a request to the body of its answer: everything is answered from memory, no
API call and no wait inside. Called by `app` (the routes) and by `lane` (the connections of kube-scheduler).

kube-scheduler takes anything but 200 as an error of the whole cycle, so 200 is used wherever a pod can be told
something useful (`Error`, `FailedNodes`), 400 for a request that is not the protocol's, 503 while cold.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from podium_core.placement.base import PlacementQuery
from podium_core.placement.needs import TRIAL_LABEL, InvalidPodError, need_of
from podium_core.placement.node_parser import PlacedPod, placed_pod
from podium_core.placement.scores import MIDDLE
from podium_core.placement.views import PodNeed
from podium_core.schema.pod import Pod
from podium_extender.metrics import Metrics
from podium_extender.requeue.unschedulable_queue import WaitingRoom
from podium_extender.server.limits import RequestError, parse
from podium_extender.state.node_cache import Telemetry
from podium_extender.state.views import Views
from podium_extender.verbs.decisions import Filtered, Judge, refused
from podium_extender.verbs.failed_nodes import Tried
from podium_extender.verbs.node_selection import Handed, narrowed, others_say
from podium_extender.verbs.preempt import Evictor
from podium_extender.verbs.request import Asked, Reader, write_names
from podium_extender.verbs.response_rows import Rows
from podium_extender.verbs.top_k import SCORED
from podium_extender.verbs.wire import FilterResult, NodeList, PreemptArgs

VERBS = ("filter", "prioritize", "preempt")
_NONE_FAILED = b'{"Nodes":null,"NodeNames":%b,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'


class Verbs:
    """`evictor` answers preempt, `waiting` is told which pods every node refused. `scored`: how many nodes filter hands
    on at most, where it may choose (`narrow`).
    """

    def __init__(
        self,
        telemetry: Telemetry,
        metrics: Metrics,
        judge: Judge,
        evictor: Evictor | None = None,
        waiting: WaitingRoom | None = None,
        scored: int = SCORED,
    ) -> None:
        self._telemetry = telemetry
        self._metrics = metrics
        self._judge = judge
        self._evicts = evictor or Evictor(telemetry, metrics, judge.stale_after)
        self._waiting = waiting
        self._scored = scored
        self._reader = Reader()
        self._rows = Rows()
        self._tried = Tried()
        self._read: tuple[Pod, PodNeed, PlacedPod] | None = None
        self._handed: tuple[Pod, Handed] | None = None  # what prioritize will ask of, about this pod

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

    def get_ready(self) -> None:
        """Look at the node that the last pod went to: the next question comes soon, and is most often about a pod just
        like it. To be called while kube-scheduler is at work on the answer, for until then it waits.
        """
        if self._telemetry.cold() is None:
            self._judge.get_ready(self._telemetry.views(), self._telemetry.clock())

    def _filter(self, args: Asked) -> bytes:
        if cold := self._telemetry.cold():
            # reaches the pod's own condition, unlike a status code; the scheduler asks again
            result = FilterResult(error=f"Podium's extender is not ready yet: {cold}")
            return result.model_dump_json(by_alias=True).encode()
        return self._filtered(args, self._chosen(args))

    def _chosen(self, args: Asked) -> Filtered:
        """What passes; whoever is refused everywhere waits, and where one node is left the pod will be there."""
        telemetry, waiting, now = self._telemetry, self._waiting, self._telemetry.clock()
        try:
            question = self._question(args)
            views = telemetry.views()
            decided = self._judge.filter(question, args.names, views, now)
            if waiting is not None:
                name = args.pod.metadata.namespace, args.pod.metadata.name
                if decided.passed:
                    waiting.leaves(name)
                else:
                    waiting.refused(name, question.need, args.names, now)
            left = self._tried.without(question.pod, decided.passed, now)
            decided = replace(decided, passed=self._handed_on(args, question, left, views, now))
            if len(decided.passed) == 1:  # then there is nothing to score
                self._expect(args, decided.passed[0])
        except InvalidPodError as error:
            decided = Filtered((), dict.fromkeys(args.names, refused(error.code, str(error))))
            self._metrics.handed_on.labels("none").inc()
        for code, count in Counter(why.code for why in decided.failed.values()).items():
            self._metrics.rejections.labels(code).inc(count)
        return decided

    def _handed_on(
        self, args: Asked, question: PlacementQuery, passed: Sequence[str], views: Views, now: float
    ) -> Sequence[str]:
        """The best of those that may take it, of which prioritize will be asked, or all of them."""
        found: Handed | None = None
        if not passed:
            why = "none"
        elif len(passed) <= self._scored:
            why = "few"
        elif others_say(args.pod, self._telemetry):
            why = "preference"
        else:
            ranking = self._judge.prioritize(self._with_cpus(question, args.pod), passed, views, now)
            found = narrowed(ranking, passed, views, self._scored, self._telemetry.preferences.shunned)
            why = "best" if found is not None else "no_favourite"
        self._metrics.handed_on.labels(why).inc()
        self._handed = None if found is None else (args.pod, found)
        return passed if found is None else found.names

    def _filtered(self, args: Asked, decided: Filtered) -> bytes:
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
            views = self._telemetry.views()
            self._expect(args, handed[1].favourite)
            return self._rows.write(args.names, handed[1].scores, views)
        try:
            question = self._question(args)
        except InvalidPodError:  # filter says why; nothing is better than anything else for such a pod
            return self._rows.write(args.names, np.full(len(args.names), MIDDLE), self._telemetry.views())
        views = self._telemetry.views()
        question = self._with_cpus(question, args.pod)
        ranking = self._judge.prioritize(question, args.names, views, self._telemetry.clock())
        if ranking.favourite is not None:
            self._expect(args, args.names[ranking.favourite])
        return self._rows.write(args.names, ranking.scores, views)

    def _preempt(self, args: PreemptArgs) -> bytes:
        if self._telemetry.cold():
            self._evicts.park(args, self._telemetry.clock())
        self._warm()
        return self._evicts.answer(args).model_dump_json(by_alias=True).encode()

    def _warm(self) -> None:
        """Whose victims would be named, or which node called idle, is not guessed."""
        if cold := self._telemetry.cold():
            raise RequestError(503, f"not ready yet: {cold}")

    def _expect(self, args: Asked, node: str) -> None:
        """Whole, as the watch will show it: a preemption may name it before its binding is seen."""
        meta = args.pod.metadata
        _, seen = self._of(args.pod)
        self._tried.named(meta.uid, node, self._telemetry.clock())
        self._telemetry.expect((meta.namespace, meta.name), replace(seen, node=node))

    def _question(self, args: Asked) -> PlacementQuery:
        meta = args.pod.metadata
        self._telemetry.asked_about(meta.uid)
        need, _ = self._of(args.pod)
        return PlacementQuery(need, meta.uid, self._telemetry.typical(), is_trial=bool(meta.labels.get(TRIAL_LABEL)))

    def _with_cpus(self, question: PlacementQuery, pod: Pod) -> PlacementQuery:
        """The same to a policy that counts CPUs, where those of the nodes are known (as of the last `views`)."""
        if not self._telemetry.cpus_known:
            return question
        question = replace(question, cpus_known=True)
        if not self._judge.policy.resolve(question).uses_cpus:
            return question
        _, seen = self._of(pod)
        return replace(question, need=seen.need_with_cpus)

    def _of(self, pod: Pod) -> tuple[PodNeed, PlacedPod]:
        """What it needs, and what the watch will show of it but for the node; both verbs ask of one pod, so it is kept.
        Raises InvalidPodError.
        """
        if self._read is None or self._read[0] is not pod:
            need = need_of(pod)
            self._read = pod, need, placed_pod(pod, need)
        return self._read[1:]


def _only(nodes: NodeList, passed: frozenset[str]) -> NodeList:
    """Full form: answering with names would be zero nodes to the scheduler, without any error."""
    return NodeList(items=[node for node in nodes.items if node.metadata.name in passed])
