"""What becomes of trials that their policy cuts: those that end now, and those that wait for good when nothing else of
their job can go on.

Called by the planner, before the order and after creation. A waiting trial keeps its pod and so its share of a GPU: it
must never keep out a trial that would use it, and never keep a job from ending. What waits and how is
`Standing.waits`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from podium_core.domain.actions import Action, CreatePod, CreateTrial, Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import GpuView, JobKey, Snapshot, TrialKey
from podium_core.planning.completion import Closing, ending, without
from podium_core.planning.ranking import Standing
from podium_core.policies.base import Admission

STOPPED = TrialPhase.EARLY_STOPPED
PLACING_SECONDS = 30.0  # in which kube-scheduler tries again a pod that it found no node for, once there is room


@dataclass(frozen=True, slots=True)
class EarlyStops:
    """`standings`: the trials that go on; `closing` holds those that end as well."""

    actions: tuple[Action, ...]
    standings: Mapping[TrialKey, Standing]
    closing: Closing


@dataclass(frozen=True, slots=True)
class PausedEnds:
    actions: tuple[Action, ...] = ()
    wake_at: float | None = None  # when a place that was left is to have found who needs it


def stop_early(standings: Mapping[TrialKey, Standing], closing: Closing) -> EarlyStops:
    """Ends the trials that their policy stops. O(n)."""
    over = {key: s for key, s in standings.items() if s.ranked.admission is Admission.STOP and s.stops}
    if not over:
        return EarlyStops((), standings, closing)
    actions = [a for s in over.values() for a in ending(s.trial, STOPPED, "StoppedByPolicy", s.ranked.message)]
    left = {key: s for key, s in standings.items() if key not in over}
    live = without(closing.live, over.keys())
    return EarlyStops(tuple(actions), left, replace(closing, trials=closing.trials | over.keys(), live=live))


def end_paused(
    snapshot: Snapshot, standings: Mapping[TrialKey, Standing], planned: Sequence[Action], closing: Closing
) -> PausedEnds:
    """Ends trials that wait while nothing else of their job can go on: one, the last by rank, where another trial needs
    its place; all where the policy wants nobody any more. `planned`: what this cycle creates and requeues. O(n).
    """
    waits = {s.job.key for s in standings.values() if s.ranked.admission is Admission.WAIT and s.paused}
    by_job: dict[JobKey, list[Standing]] = {key: [] for key in waits}
    for standing in standings.values() if waits else ():
        if (mine := by_job.get(standing.job.key)) is not None:
            mine.append(standing)
    held_up = [mine for _, mine in sorted(by_job.items()) if not any(_goes_on(s, snapshot.now) for s in mine)]
    if not held_up:
        return PausedEnds()  # nearly always
    keys = {trial.key: trial.job for trial in snapshot.trials}
    # what is created, requeued or ended, now or a moment ago, makes room or work of its own: look again when it shows
    changing = {a.job for a in planned if isinstance(a, CreateTrial)}
    changing |= {keys[a.trial] for a in planned if isinstance(a, CreatePod | Requeue)}
    changing |= {keys[key] for key in closing.trials}
    changing |= {t.job for t in snapshot.trials if t.phase in FINAL and t.pod is not None}
    changing |= {t.job for t in snapshot.trials if t.terminating and not t.termination_overdue}
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    actions: list[Action] = []
    wakes: list[float] = []
    for mine in held_up:
        key, waiting = mine[0].job.key, [s for s in mine if s.paused]
        if key in changing or mine[0].job.suspended:
            continue
        if len(waiting) == len(mine) and len(closing.trials_by_job[key]) >= mine[0].job.max_trials:
            for s in waiting:
                text = "Its policy lets it wait and wants no other trial of the job any more."
                actions += ending(s.trial, STOPPED, "PolicyDone", text)
            continue
        placed = [s for s in waiting if _has_good_gpu(s, gpus)]
        left_at = max(
            (trial.finished_at for trial in closing.trials_by_job[key] if trial.finished_at is not None),
            default=-math.inf,
        )
        if placed and any(s.trial.waits_for_capacity for s in mine) and snapshot.now < left_at + PLACING_SECONDS:
            wakes.append(left_at + PLACING_SECONDS)
        elif placed:
            last = max(placed, key=lambda s: s.ranked.rank)
            text = "Its policy lets it wait and ranks it last of those: another trial needs its place."
            actions += ending(last.trial, STOPPED, "SlotNeeded", text)
    return PausedEnds(tuple(actions), min(wakes, default=None))


def _goes_on(standing: Standing, now: float) -> bool:
    """Whether it works, or will without our help: a pod that has room, a back-off that passes, a user who lets it go
    on.
    """
    trial = standing.trial
    has_pod = trial.pod is not None and not trial.waits_for_capacity
    return not standing.paused and (has_pod or trial.retry_at > now or trial.suspend)


def _has_good_gpu(standing: Standing, gpus: Mapping[str, GpuView]) -> bool:
    """Its end frees a place that another trial of the job can take; one on an ill GPU would end for nothing."""
    mine = [gpus[uuid] for uuid in standing.trial.gpus if uuid in gpus]
    return bool(mine) and all(fits(standing.job, gpu) for gpu in mine)
