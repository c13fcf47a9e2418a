"""The verb `preempt`: kube-scheduler's proposal in either form, what is known of its pods, and the answer.

Called by `app`; the decision itself is `podium.placement.victims`. Not "no" while the proposal can be used, but for
what `restraint` says: a pod that was told so waits until some pod is deleted, up to five minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from podium.placement.needs import BadPodError, need_of, place_matters
from podium.placement.readings import placed
from podium.placement.victims import Occupant, Preemptor, Proposal, choose
from podium_extender.announcements import Announcements
from podium_extender.metrics import Metrics
from podium_extender.restraint import Guard, over_budget, remember, spare, standing
from podium_extender.telemetry import Telemetry
from podium_extender.wire import MetaPod, MetaVictims, PreemptArgs, PreemptResult

log = logging.getLogger(__name__)
SHOWN = 3


def preempt(
    args: PreemptArgs,
    telemetry: Telemetry,
    metrics: Metrics,
    stale_after: float,
    guard: Guard,
    announced: Announcements | None = None,
) -> PreemptResult:
    """One node and its victims, or no node where no proposal may be carried out; why is counted and logged. Who goes
    and what that may cost is put down in `announced`, once for each victim.
    """
    name = f"{args.pod.metadata.namespace}/{args.pod.metadata.name}"
    try:
        need = need_of(args.pod)
    except BadPodError as error:  # no room would help a pod that cannot be placed
        metrics.preemptions.labels(error.code).inc()
        log.warning("preemption for %s: %s", name, error)
        return PreemptResult()
    now, uid = telemetry.clock(), args.pod.metadata.uid
    before = standing(guard.history, uid, telemetry.occupants, now)
    if before is not None:
        metrics.preemptions.labels("RoomIsBeingMade").inc()
        log.info("preemption for %s: %d trials leave %s for it already", name, len(before.victims), before.node)
        if before.node not in args.proposed:
            return PreemptResult()
        return _answer(before.node, before.victims, before.violations)
    preemptor = Preemptor(need, args.pod.spec.priority, not place_matters(args.pod))
    chosen, refusals = choose(preemptor, _proposals(args, telemetry, guard, now), now, stale_after)
    if chosen is not None and (limit := over_budget(guard.history, chosen, now, guard.limits)) is not None:
        refusals, chosen = {chosen.node: limit}, None
    if chosen is None:
        for refusal in refusals.values():
            metrics.preemptions.labels(refusal.code).inc()
        why = [f"{node}: {refusal.code}: {refusal.message}" for node, refusal in sorted(refusals.items())]
        log.warning("preemption for %s: no node of %d: %s", name, len(refusals), " ".join(why[:SHOWN]))
        return PreemptResult()
    metrics.preemptions.labels("Evicted").inc()
    log.info("preemption for %s on %s: %s", name, chosen.node, "; ".join(_loss(one) for one in chosen.victims))
    if announced is not None:
        announced.evicted(name, args.pod.spec.priority, chosen)
    guard.history = remember(guard.history, uid, chosen, now)
    return _answer(chosen.node, tuple(one.pod.uid for one in chosen.victims), chosen.violations)


def _proposals(args: PreemptArgs, telemetry: Telemetry, guard: Guard, now: float) -> Iterator[Proposal]:
    whole = args.node_name_to_victims or {}
    short = args.node_name_to_meta_victims or {}
    names = args.proposed
    views = telemetry.views()
    for name in names:
        known = telemetry.occupants(name)
        if args.node_name_to_victims is not None:
            # a pod of another scheduler is in no cache of ours: what it holds is read here, and it is never chosen
            own = args.pod.spec.scheduler_name
            told = {pod.metadata.uid: (placed(pod), pod.spec.scheduler_name == own) for pod in whole[name].pods}
            known = {
                uid: Occupant(pod if ours else replace(pod, trial=None)) for uid, (pod, ours) in told.items()
            } | known
            uids = tuple(pod.metadata.uid for pod in whole[name].pods)
            violations = whole[name].num_pdb_violations
        else:
            uids = tuple(pod.uid for pod in short[name].pods)
            violations = short[name].num_pdb_violations
        known = {uid: spare(one, now, guard.limits) for uid, one in known.items()}
        yield Proposal(views.get(name), uids, violations, known)


def _answer(node: str, victims: tuple[str, ...], violations: int) -> PreemptResult:
    pods = [MetaPod(uid=uid) for uid in victims]
    return PreemptResult(node_name_to_meta_victims={node: MetaVictims(pods=pods, num_pdb_violations=violations)})


def _loss(victim: Occupant) -> str:
    """What the agent will count if the trial cannot save before it ends."""
    trial = "/".join(victim.pod.trial or ("", victim.pod.uid))
    rank = "not ranked" if victim.rank is None else f"rank {victim.rank}"
    young = ", just begun" if victim.young else ""
    return f"{trial} ({rank}{young}) goes, {victim.unsaved:.0f} GPU-seconds since its last save"
