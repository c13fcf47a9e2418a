"""The verb `preempt`: kube-scheduler's proposal in either form, what is known of its pods, and the answer.

Called by `verbs`; the decision itself is `podium_core.placement.victims`. Not "no" while the proposal can be used, but
for
what `restraint` says: a pod that was told so waits until some pod is deleted, up to five minutes, or `parked` says that
another try is worth it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from podium_core.placement.needs import InvalidPodError, has_placement_constraints, need_of
from podium_core.placement.node_parser import placed_pod
from podium_core.placement.victims import Occupant, Preemptor, Proposal, choose
from podium_extender.metrics import Metrics
from podium_extender.requeue.backoff_queue import Chance, Parked, ParkingLot, Proposed
from podium_extender.requeue.unschedulable_queue import Budget
from podium_extender.state.node_cache import Telemetry
from podium_extender.verbs.events import Announcements
from podium_extender.verbs.preemption_limits import (
    Guard,
    Limits,
    budget_free_at,
    over_budget,
    remember,
    spare,
    standing,
)
from podium_extender.verbs.wire import MetaPod, MetaVictims, PreemptArgs, PreemptResult

log = logging.getLogger(__name__)
SHOWN = 3
NO_STORM = Limits()
LOOK_AGAIN = 1.0  # seconds, where room is being made elsewhere
NUDGES_PER_SECOND, NUDGES_AT_ONCE = 1.0, 5  # each wakes many


class Evictor:
    """The answers of one extender, each of which bears on the next (`restraint`). Who goes and what that may cost is
    put down in `announced`, once for each victim; pods for which nobody goes stand in `parking`.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        metrics: Metrics,
        stale_after: float,
        limits: Limits = NO_STORM,
        announced: Announcements | None = None,
        parking: ParkingLot | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._metrics = metrics
        self._stale_after = stale_after
        self._guard = Guard(limits)
        self._announced = announced
        self.parking = ParkingLot(Budget(NUDGES_PER_SECOND, NUDGES_AT_ONCE)) if parking is None else parking

    def answer(self, args: PreemptArgs) -> PreemptResult:
        """One node and its victims, or no node where no proposal may be carried out; why is counted and logged."""
        name = f"{args.pod.metadata.namespace}/{args.pod.metadata.name}"
        try:
            preemptor = _preemptor(args)
        except InvalidPodError as error:  # no room would help a pod that cannot be placed
            self._metrics.preemptions.labels(error.code).inc()
            log.warning("preemption for %s: %s", name, error)
            return PreemptResult()
        guard, now, uid = self._guard, self._telemetry.clock(), args.pod.metadata.uid
        before = standing(guard.history, uid, self._telemetry.occupants, now)
        if before is not None:
            self._metrics.preemptions.labels("PreemptionInProgress").inc()
            log.info("preemption for %s: %d trials leave %s for it already", name, len(before.victims), before.node)
            if before.node not in args.proposed:
                self.park(args, now + LOOK_AGAIN)
                return PreemptResult()
            return _answer(before.node, before.victims, before.violations)
        chosen, refusals = choose(preemptor, self._proposals(_proposed(args), _told(args)), now, self._stale_after)
        again_at = None
        if chosen is not None and (limit := over_budget(guard.history, chosen, now, guard.limits)) is not None:
            again_at = budget_free_at(guard.history, len(chosen.victims), now, guard.limits)
            refusals, chosen = {chosen.node: limit}, None
        if chosen is None:
            for refusal in refusals.values():
                self._metrics.preemptions.labels(refusal.code).inc()
            why = [f"{node}: {refusal.code}: {refusal.message}" for node, refusal in sorted(refusals.items())]
            log.warning("preemption for %s: no node of %d: %s", name, len(refusals), " ".join(why[:SHOWN]))
            self.park(args, again_at)
            return PreemptResult()
        self._metrics.preemptions.labels("Evicted").inc()
        log.info("preemption for %s on %s: %s", name, chosen.node, "; ".join(_loss(one) for one in chosen.victims))
        if self._announced is not None:
            self._announced.evicted(name, args.pod.spec.priority, chosen)
        self.parking.leaves((args.pod.metadata.namespace, args.pod.metadata.name))
        guard.history = remember(guard.history, uid, chosen, now)
        return _answer(chosen.node, tuple(one.pod.uid for one in chosen.victims), chosen.violations)

    def park(self, args: PreemptArgs, again_at: float | None) -> None:
        """The scheduler sets the pod aside now. `again_at`: when the answer may change by itself."""
        meta, now = args.pod.metadata, self._telemetry.clock()
        with contextlib.suppress(InvalidPodError):
            one = Parked((meta.namespace, meta.name), meta.uid, _preemptor(args), _proposed(args), again_at, now)
            self.parking.park(one)

    def ask_again(self, one: Parked, nodes: Collection[str]) -> Chance:
        """What `answer` would say to a parked pod now, as far as these of the proposed nodes go; changes nothing."""
        now, guard = self._telemetry.clock(), self._guard
        if not one.proposed:  # nobody knows what it was told before this process: it asks itself
            return Chance(next(iter(self._telemetry.views().names()), None), now + LOOK_AGAIN)
        if standing(guard.history, one.uid, self._telemetry.occupants, now) is not None:
            return Chance(again_at=now + LOOK_AGAIN)
        some = {name: one.proposed[name] for name in nodes}
        chosen, _ = choose(one.preemptor, self._proposals(some, {}), now, self._stale_after)
        if chosen is None:
            return Chance()
        free_at = budget_free_at(guard.history, len(chosen.victims), now, guard.limits)
        return Chance(chosen.node) if free_at <= now else Chance(again_at=free_at)

    def _proposals(
        self, proposed: Mapping[str, Proposed], told: Mapping[str, Mapping[str, Occupant]]
    ) -> Iterator[Proposal]:
        views, now, limits = self._telemetry.views(), self._telemetry.clock(), self._guard.limits
        for name, one in proposed.items():
            known = {**told.get(name, {}), **self._telemetry.occupants(name)}
            spared = {uid: spare(occupant, now, limits) for uid, occupant in known.items()}
            yield Proposal(views.get(name), one.victims, one.violations, spared)


def _preemptor(args: PreemptArgs) -> Preemptor:
    return Preemptor(need_of(args.pod), args.pod.spec.priority, not has_placement_constraints(args.pod))


def _proposed(args: PreemptArgs) -> dict[str, Proposed]:
    """By node, from either form."""
    if args.node_name_to_victims:
        whole = args.node_name_to_victims.items()
        return {n: Proposed(tuple(pod.metadata.uid for pod in v.pods), v.num_pdb_violations) for n, v in whole}
    short = (args.node_name_to_meta_victims or {}).items()
    return {n: Proposed(tuple(pod.uid for pod in v.pods), v.num_pdb_violations) for n, v in short}


def _told(args: PreemptArgs) -> dict[str, dict[str, Occupant]]:
    """Victims that came as whole pods. A pod of another scheduler is in no cache of ours: what it holds is read here,
    and it is never chosen.
    """
    own = args.pod.spec.scheduler_name
    found: dict[str, dict[str, Occupant]] = {}
    for name, victims in (args.node_name_to_victims or {}).items():
        pods = [(placed_pod(pod), pod.spec.scheduler_name == own) for pod in victims.pods]
        found[name] = {pod.uid: Occupant(pod if ours else replace(pod, trial=None)) for pod, ours in pods}
    return found


def _answer(node: str, victims: tuple[str, ...], violations: int) -> PreemptResult:
    pods = [MetaPod(uid=uid) for uid in victims]
    return PreemptResult(node_name_to_meta_victims={node: MetaVictims(pods=pods, num_pdb_violations=violations)})


def _loss(victim: Occupant) -> str:
    """What the agent will count if the trial cannot save before it ends."""
    trial = "/".join(victim.pod.trial or ("", victim.pod.uid))
    rank = "not ranked" if victim.rank is None else f"rank {victim.rank}"
    young = ", just begun" if victim.just_started else ""
    return f"{trial} ({rank}{young}) goes, {victim.unsaved:.0f} GPU-seconds since its last save"
