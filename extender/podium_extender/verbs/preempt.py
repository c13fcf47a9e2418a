"""The verb preempt: kube-scheduler's proposal in either form, what is known of its pods, and the response.

The decision itself is `podium_core.placement.victims`. The response names victims whenever the proposal can be used and
the limits of `preemption_limits` allow it. kube-scheduler retries a pod without victims only after a pod is deleted, or
after up to five minutes. Therefore such a pod waits in the back-off queue, which triggers an earlier retry.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from podium_cluster.component.logs import about
from podium_core.placement.needs import InvalidPodError, has_placement_constraints, need_of
from podium_core.placement.node_parser import placed_pod
from podium_core.placement.victims import Eviction, Occupant, Preemptor, Proposal, choose
from podium_core.placement.views import NodeRefusal
from podium_extender.metrics import Metrics
from podium_extender.requeue.backoff_queue import BackoffPod, BackoffQueue, ProposedVictims, RetryOutcome
from podium_extender.requeue.unschedulable_queue import TokenBucket
from podium_extender.state.node_cache import NodeCache
from podium_extender.verbs.events import EventRecorder
from podium_extender.verbs.preemption_limits import (
    PreemptionLimits,
    PreemptionState,
    limit_allows_at,
    limit_refusal,
    mark_just_started,
    pending_answer,
    record_answer,
)
from podium_extender.verbs.wire import MetaPod, MetaVictims, PreemptArgs, PreemptResult

log = logging.getLogger(__name__)
MAX_LOGGED_REFUSALS = 3
DEFAULT_LIMITS = PreemptionLimits()
RECHECK_SECONDS = 1.0  # while victims on another node are being deleted
RETRIES_PER_SECOND, RETRIES_AT_ONCE = 1.0, 5  # each retry wakes many pods


class PreemptVerb:
    """The verb preempt of one extender; earlier responses influence later ones (`preemption_limits`).

    `events` receives an event for each victim. `backoff_queue` holds the pods for which there were no victims.
    """

    def __init__(
        self,
        node_cache: NodeCache,
        metrics: Metrics,
        stale_after: float,
        limits: PreemptionLimits = DEFAULT_LIMITS,
        events: EventRecorder | None = None,
        backoff_queue: BackoffQueue | None = None,
    ) -> None:
        self._node_cache = node_cache
        self._metrics = metrics
        self._stale_after = stale_after
        self._state = PreemptionState(limits)
        self._events = events
        if backoff_queue is None:
            backoff_queue = BackoffQueue(TokenBucket(RETRIES_PER_SECOND, RETRIES_AT_ONCE))
        self.backoff_queue = backoff_queue

    def answer(self, args: PreemptArgs) -> PreemptResult:
        """Return one node and its victims, or no node if no proposal can be used.

        The reasons of refusals are counted and logged.
        """
        meta = args.pod.metadata
        with about(namespace=meta.namespace, pod=meta.name):
            return self._answer(args)

    def _answer(self, args: PreemptArgs) -> PreemptResult:
        name = f"{args.pod.metadata.namespace}/{args.pod.metadata.name}"
        try:
            preemptor = _preemptor(args)
        except InvalidPodError as error:  # a preemption would not help a pod that cannot be placed
            self._metrics.preemptions.labels(error.code).inc()
            log.warning("preemption for %s: %s", name, error)
            return PreemptResult()
        state, now, uid = self._state, self._node_cache.clock(), args.pod.metadata.uid
        pending = pending_answer(state.history, uid, self._node_cache.occupants, now)
        if pending is not None:
            self._metrics.preemptions.labels("PreemptionInProgress").inc()
            log.info("preemption for %s: %d trials on %s are ending for it", name, len(pending.victims), pending.node)
            if pending.node not in args.proposed:
                self.add_to_backoff_queue(args, now + RECHECK_SECONDS)
                return PreemptResult()
            return _result(pending.node, pending.victims, pending.violations)
        chosen, refusals = choose(preemptor, self._proposals(_proposed(args), _sent(args)), now, self._stale_after)
        retry_at = None
        if chosen is not None and (limit := limit_refusal(state.history, chosen, now, state.limits)) is not None:
            retry_at = limit_allows_at(state.history, len(chosen.victims), now, state.limits)
            refusals, chosen = {chosen.node: limit}, None
        if chosen is None:
            self._report_refusals(name, refusals)
            self.add_to_backoff_queue(args, retry_at)
            return PreemptResult()
        self._report_victims(name, args.pod.spec.priority, chosen)
        self.backoff_queue.remove((args.pod.metadata.namespace, args.pod.metadata.name))
        state.history = record_answer(state.history, uid, chosen, now)
        return _result(chosen.node, tuple(victim.pod.uid for victim in chosen.victims), chosen.violations)

    def _report_refusals(self, name: str, refusals: Mapping[str, NodeRefusal]) -> None:
        for refusal in refusals.values():
            self._metrics.preemptions.labels(refusal.code).inc()
        reasons = [f"{node}: {refusal.code}: {refusal.message}" for node, refusal in sorted(refusals.items())]
        shown = " ".join(reasons[:MAX_LOGGED_REFUSALS])
        log.warning("preemption for %s: none of %d nodes can be used: %s", name, len(refusals), shown)

    def _report_victims(self, name: str, priority: int, chosen: Eviction) -> None:
        self._metrics.preemptions.labels("Evicted").inc()
        with about(node=chosen.node):
            log.info("preemption for %s on %s: %s", name, chosen.node, "; ".join(_cost(one) for one in chosen.victims))
        if self._events is not None:
            self._events.record_preemption(name, priority, chosen)

    def add_to_backoff_queue(self, args: PreemptArgs, retry_at: float | None) -> None:
        """Add the pod to the back-off queue; `retry_at` is when the response may change without an event."""
        meta, now = args.pod.metadata, self._node_cache.clock()
        with contextlib.suppress(InvalidPodError):
            proposed = _proposed(args)
            pod = BackoffPod((meta.namespace, meta.name), meta.uid, _preemptor(args), proposed, retry_at, now)
            self.backoff_queue.add(pod)

    def retry_outcome(self, pod: BackoffPod, nodes: Collection[str]) -> RetryOutcome:
        """Return what `answer` would respond for a waiting pod, considering only `nodes`; changes no state."""
        now, state = self._node_cache.clock(), self._state
        if not pod.proposed:  # the proposal was made to an earlier process, so the pod has to be scheduled again
            return RetryOutcome(next(iter(self._node_cache.views().names()), None), now + RECHECK_SECONDS)
        if pending_answer(state.history, pod.uid, self._node_cache.occupants, now) is not None:
            return RetryOutcome(retry_at=now + RECHECK_SECONDS)
        proposed = {name: pod.proposed[name] for name in nodes}
        chosen, _ = choose(pod.preemptor, self._proposals(proposed, {}), now, self._stale_after)
        if chosen is None:
            return RetryOutcome()
        allowed_at = limit_allows_at(state.history, len(chosen.victims), now, state.limits)
        return RetryOutcome(chosen.node) if allowed_at <= now else RetryOutcome(retry_at=allowed_at)

    def _proposals(
        self, proposed: Mapping[str, ProposedVictims], sent: Mapping[str, Mapping[str, Occupant]]
    ) -> Iterator[Proposal]:
        views, now, limits = self._node_cache.views(), self._node_cache.clock(), self._state.limits
        for name, victims in proposed.items():
            known = {**sent.get(name, {}), **self._node_cache.occupants(name)}
            occupants = {uid: mark_just_started(occupant, now, limits) for uid, occupant in known.items()}
            yield Proposal(views.get(name), victims.uids, victims.violations, occupants)


def _preemptor(args: PreemptArgs) -> Preemptor:
    return Preemptor(need_of(args.pod), args.pod.spec.priority, not has_placement_constraints(args.pod))


def _proposed(args: PreemptArgs) -> dict[str, ProposedVictims]:
    """Return the proposed victims by node, from either form of the request."""
    if args.node_name_to_victims:
        whole = args.node_name_to_victims.items()
        return {n: ProposedVictims(tuple(pod.metadata.uid for pod in v.pods), v.num_pdb_violations) for n, v in whole}
    by_uid = (args.node_name_to_meta_victims or {}).items()
    return {n: ProposedVictims(tuple(pod.uid for pod in v.pods), v.num_pdb_violations) for n, v in by_uid}


def _sent(args: PreemptArgs) -> dict[str, dict[str, Occupant]]:
    """Return the victims that were sent as whole pods.

    The caches do not contain pods of other schedulers. Their requests are read here, and they are never chosen.
    """
    scheduler = args.pod.spec.scheduler_name
    sent: dict[str, dict[str, Occupant]] = {}
    for name, victims in (args.node_name_to_victims or {}).items():
        pods = [(placed_pod(pod), pod.spec.scheduler_name == scheduler) for pod in victims.pods]
        sent[name] = {pod.uid: Occupant(pod if own else replace(pod, trial=None)) for pod, own in pods}
    return sent


def _result(node: str, victims: tuple[str, ...], violations: int) -> PreemptResult:
    pods = [MetaPod(uid=uid) for uid in victims]
    return PreemptResult(node_name_to_meta_victims={node: MetaVictims(pods=pods, num_pdb_violations=violations)})


def _cost(victim: Occupant) -> str:
    """Describe the work that the agent will report as lost if the trial ends without a checkpoint."""
    trial = "/".join(victim.pod.trial or ("", victim.pod.uid))
    rank = "not ranked" if victim.rank is None else f"rank {victim.rank}"
    young = ", started recently" if victim.just_started else ""
    return f"{trial} ({rank}{young}) is preempted, {victim.unsaved:.0f} GPU-seconds since its last checkpoint"
