"""The verbs as functions from the body of a request to the body of its response.

All responses are computed from memory, without calls to the API server. `app` calls this module.

kube-scheduler treats every status except 200 as a failure of the whole scheduling cycle. Therefore a response has
status 200 wherever the pod can be informed (`Error`, `FailedNodes`). It has status 400 for a request that does not
follow the protocol, and 503 until the caches are filled.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from podium_core.placement.needs import TRIAL_LABEL, InvalidPodError, has_preferences, need_of
from podium_core.placement.node_parser import PlacedPod, placed_pod
from podium_core.placement.policies.base import PlacementQuery
from podium_core.placement.scores import MIDDLE, NodeRanking
from podium_core.placement.views import PodNeed
from podium_core.schema.pod import Pod
from podium_extender.metrics import Metrics
from podium_extender.requeue.unschedulable_queue import UnschedulableQueue
from podium_extender.state.node_cache import NodeCache
from podium_extender.state.views import Views
from podium_extender.verbs.decisions import FilterDecision, NodeEvaluator, failed_node
from podium_extender.verbs.node_selection import SCORED_NODES, BindingAttempts, NodeSelection, select_best
from podium_extender.verbs.preempt import PreemptVerb
from podium_extender.verbs.request import NodeRequest, RequestParser
from podium_extender.verbs.response_rows import ResponseRows
from podium_extender.verbs.wire import FilterResult, NodeList, PreemptArgs, RequestError, parse

VERBS = ("filter", "prioritize", "preempt")
_NONE_FAILED = b'{"Nodes":null,"NodeNames":%b,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'


@dataclass(slots=True)
class CycleState:
    """State of one scheduling cycle of one pod: filter creates it, and prioritize continues with it.

    `selection` holds the nodes that filter selected, with their scores; None if filter returned all nodes that fit.
    """

    pod: Pod
    need: PodNeed
    placed: PlacedPod  # as the watch will show the pod, without its node
    selection: NodeSelection | None = None


class Verbs:
    """The three verbs of one extender.

    `preempt_verb` answers preempt. `unschedulable` receives the pods that every node refused. filter selects at most
    `scored_nodes` nodes if no soft preference has to choose among all (`node_selection`).
    """

    def __init__(
        self,
        node_cache: NodeCache,
        metrics: Metrics,
        evaluator: NodeEvaluator,
        preempt_verb: PreemptVerb | None = None,
        unschedulable: UnschedulableQueue | None = None,
        scored_nodes: int = SCORED_NODES,
    ) -> None:
        self._node_cache = node_cache
        self._metrics = metrics
        self._evaluator = evaluator
        self._preempt_verb = preempt_verb or PreemptVerb(node_cache, metrics, evaluator.stale_after)
        self._unschedulable = unschedulable
        self._scored_nodes = scored_nodes
        self._parser = RequestParser()
        self._rows = ResponseRows()
        self._attempts = BindingAttempts()
        self._cycle: CycleState | None = None  # between filter and prioritize of one pod

    def answer(self, verb: str, body: bytes, began: float) -> bytes:
        """Return the response of one of VERBS to a request; raises RequestError.

        `began` is the value of time.perf_counter() when the first bytes of the request arrived.
        """
        read = time.perf_counter()
        if verb == "preempt":
            args = parse(body, PreemptArgs)
            parsed = time.perf_counter()
            response = self._preempt(args)
        else:
            request = self._parser.parse(body)
            parsed = time.perf_counter()
            response = self._filter(request) if verb == "filter" else self._prioritize(request)
        self._metrics.answered(verb, began, read, parsed, time.perf_counter())
        return response

    def precompute(self) -> None:
        """Evaluate the nodes that changed, in advance of the next request.

        The next request comes soon and is most often about a similar pod. Call this while kube-scheduler processes the
        previous response, because kube-scheduler waits for every response.
        """
        if self._node_cache.not_ready() is None:
            self._evaluator.precompute(self._node_cache.views(), self._node_cache.clock())

    def _filter(self, request: NodeRequest) -> bytes:
        if not_ready := self._node_cache.not_ready():
            # unlike a status code, this text is written to the pod's condition; the scheduler asks again
            result = FilterResult(error=f"Podium's extender is not ready yet: {not_ready}")
            return result.model_dump_json(by_alias=True).encode()
        try:
            cycle = self._begin_cycle(request.pod)
        except InvalidPodError as error:
            failed = failed_node(error.code, str(error))
            decision, reason = FilterDecision((), dict.fromkeys(request.names, failed)), "none"
        else:
            decision, reason = self._choose_nodes(cycle, request.names)
            self._cycle = cycle
        self._metrics.filter_answers.labels(reason).inc()
        for code, count in Counter(failed.code for failed in decision.failed.values()).items():
            self._metrics.rejections.labels(code).inc(count)
        return self._filter_response(request, decision)

    def _choose_nodes(self, cycle: CycleState, names: Sequence[str]) -> tuple[FilterDecision, str]:
        """Return the nodes for the response of filter, and the reason for the metric; record the selection."""
        meta, now, views = cycle.pod.metadata, self._node_cache.clock(), self._node_cache.views()
        decision = self._evaluator.filter(cycle.need, names, views, now)
        if self._unschedulable is not None:
            if decision.passed:
                self._unschedulable.remove((meta.namespace, meta.name))
            else:
                self._unschedulable.add((meta.namespace, meta.name), cycle.need, names, now)
        passed = self._attempts.untried(meta.uid, decision.passed, now)
        cycle.selection, reason = self._select(cycle, passed, views, now)
        if cycle.selection is not None:
            passed = cycle.selection.names
        if len(passed) == 1:  # kube-scheduler does not call prioritize for a single node
            self._assume(cycle, passed[0])
        return replace(decision, passed=passed), reason

    def _select(
        self, cycle: CycleState, passed: Sequence[str], views: Views, now: float
    ) -> tuple[NodeSelection | None, str]:
        """Return the best of the nodes that fit, or None for all of them, and the reason for the metric."""
        if not passed:
            return None, "none"
        if len(passed) <= self._scored_nodes:
            return None, "few"
        # then a node outside the selection could be preferred by the pod, or by other pods for it
        if has_preferences(cycle.pod) or self._node_cache.may_be_preferred_by_others(cycle.pod):
            return None, "preference"
        avoided = self._node_cache.preferences.prefer_no_schedule
        selection = select_best(self._score(cycle, passed, views, now), passed, views, self._scored_nodes, avoided)
        return selection, "best" if selection is not None else "no_favourite"

    def _filter_response(self, request: NodeRequest, decision: FilterDecision) -> bytes:
        if request.names_json is not None and len(decision.passed) == len(request.names):
            return _NONE_FAILED % request.names_json
        passed = tuple(decision.passed)
        if request.names_json is not None:
            names_json = self._parser.write_names(passed)
            if not decision.failed:
                return _NONE_FAILED % names_json
        nodes, failed = request.nodes, decision.failed.items()
        if nodes is not None:  # in the full form the scheduler ignores names without an error
            kept = frozenset(passed)
            nodes = NodeList(items=[node for node in nodes.items if node.metadata.name in kept])
        result = FilterResult(
            nodes=nodes,
            node_names=list(passed) if request.nodes is None else None,
            failed_nodes={name: node.message for name, node in failed if node.resolvable},
            failed_and_unresolvable_nodes={name: node.message for name, node in failed if not node.resolvable},
        )
        return result.model_dump_json(by_alias=True).encode()

    def _prioritize(self, request: NodeRequest) -> bytes:
        self._require_ready()
        cycle, self._cycle = self._cycle, None
        selection = None if cycle is None else cycle.selection
        if (
            cycle is not None
            and selection is not None
            and selection.names == request.names
            and cycle.pod == request.pod
        ):
            views = self._node_cache.views()
            self._assume(cycle, selection.favourite)
            return self._rows.write(request.names, selection.scores, views)
        try:
            cycle = self._begin_cycle(request.pod, cycle)
        except InvalidPodError:  # filter reports the error; all nodes are equal for such a pod
            return self._rows.write(request.names, np.full(len(request.names), MIDDLE), self._node_cache.views())
        views = self._node_cache.views()
        ranking = self._score(cycle, request.names, views, self._node_cache.clock())
        if ranking.favourite is not None:
            self._assume(cycle, request.names[ranking.favourite])
        return self._rows.write(request.names, ranking.scores, views)

    def _score(self, cycle: CycleState, names: Sequence[str], views: Views, now: float) -> NodeRanking:
        """Score the nodes for the pod, with its CPU request if the free CPUs of the nodes are known."""
        meta, cpus_known = cycle.pod.metadata, self._node_cache.cpus_known  # as of the last call of `views`
        query = PlacementQuery(
            cycle.placed.need_with_cpus if cpus_known else cycle.need,
            meta.uid,
            self._node_cache.typical(),
            is_trial=bool(meta.labels.get(TRIAL_LABEL)),
            cpus_known=cpus_known,
        )
        return self._evaluator.prioritize(query, names, views, now)

    def _preempt(self, args: PreemptArgs) -> bytes:
        if self._node_cache.not_ready():
            self._preempt_verb.add_to_backoff_queue(args, self._node_cache.clock())
        self._require_ready()
        return self._preempt_verb.answer(args).model_dump_json(by_alias=True).encode()

    def _require_ready(self) -> None:
        """Raise RequestError until the caches are filled: victims and scores must not be guessed."""
        if not_ready := self._node_cache.not_ready():
            raise RequestError(503, f"not ready yet: {not_ready}")

    def _begin_cycle(self, pod: Pod, before: CycleState | None = None) -> CycleState:
        """Return the state for a request about `pod`; raises InvalidPodError.

        `before` is reused if it is about the same object.
        """
        self._node_cache.forget_assumption(pod.metadata.uid)
        if before is not None and before.pod is pod:
            return before
        need = need_of(pod)
        return CycleState(pod, need, placed_pod(pod, need))

    def _assume(self, cycle: CycleState, node: str) -> None:
        """Count the pod on `node` until a watch shows its binding; a preemption may name it as a victim before that."""
        meta = cycle.pod.metadata
        self._attempts.record(meta.uid, node, self._node_cache.clock())
        self._node_cache.assume((meta.namespace, meta.name), replace(cycle.placed, node=node))
