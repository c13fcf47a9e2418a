"""Trials that their policy stops, and paused trials that end because nothing else of their job can continue.

The planner calls `stop_early` before it writes the run queues, and `end_paused` after it creates pods. A paused trial
keeps its pod, and so its slot on a GPU: it can continue at any time. It blocks its job if the others cannot get a slot,
or if its policy pauses all trials. Then a trial ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from podium_core.domain.actions import Action, CreatePod, CreateTrial, Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import Snapshot, TrialView
from podium_core.planning.completion import Closing, ending, without
from podium_core.planning.exploitation import founders_to_come
from podium_core.planning.ranking import Standing
from podium_core.policies.base import Admission

STOPPED = TrialPhase.EARLY_STOPPED
PLACING_SECONDS = 30.0  # time for kube-scheduler to retry an unschedulable pod after a slot is freed


@dataclass(frozen=True, slots=True)
class EarlyStops:
    """Trials that their policy stops. `standings`: the other trials; `closing` includes the stopped ones."""

    actions: tuple[Action, ...]
    standings: Mapping[TrialKey, Standing]
    closing: Closing


@dataclass(frozen=True, slots=True)
class PausedEnds:
    """Paused trials that end now."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None  # when a pod should have got the slot that was freed last


def stop_early(standings: Mapping[TrialKey, Standing], closing: Closing) -> EarlyStops:
    """End the trials that their policy stops. O(n)."""
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
    """End paused trials if nothing else of their job can continue. O(n).

    One trial ends, the last by rank, if another trial needs its slot; all end if the policy selects no trial any more.
    `planned`: what this cycle creates and requeues.
    """
    paused_jobs = {s.job.key for s in standings.values() if s.ranked.admission is Admission.WAIT and s.paused}
    by_job: dict[JobKey, list[Standing]] = {key: [] for key in paused_jobs}
    for standing in standings.values() if paused_jobs else ():
        if (mine := by_job.get(standing.job.key)) is not None:
            mine.append(standing)
    blocked = [mine for _, mine in sorted(by_job.items()) if not any(_continues(s, snapshot.now) for s in mine)]
    if not blocked:
        return PausedEnds()  # the usual case
    keys = {trial.key: trial.job for trial in snapshot.trials}
    # Trials that are created, requeued or ended, now or a moment ago, change the situation: decide when it is visible.
    changing = {a.job for a in planned if isinstance(a, CreateTrial)}
    changing |= {keys[a.trial] for a in planned if isinstance(a, CreatePod | Requeue)}
    changing |= {keys[key] for key in closing.trials}
    changing |= {t.job for t in snapshot.trials if t.phase in FINAL and t.pod is not None}
    known = [(t.job, pod) for t in snapshot.trials if (pod := t.pod or t.ended_pod) is not None]
    changing |= {job for job, pod in known if pod.ends_soon}
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    actions: list[Action] = []
    wakes: list[float] = []
    for mine in blocked:
        key, waiting = mine[0].job.key, [s for s in mine if s.paused]
        if key in changing or mine[0].job.state.suspended:
            continue
        if len(waiting) == len(mine) and not founders_to_come(mine[0].job, closing.trials_by_job[key]):
            for s in waiting:
                text = "Its policy pauses it and selects no other trial of the job any more."
                actions += ending(s.trial, STOPPED, "PolicyDone", text)
            continue
        placed = [s for s in waiting if _has_good_gpu(s, gpus)]
        left_at = max(
            (trial.result.finished_at for trial in closing.trials_by_job[key] if trial.result.finished_at is not None),
            default=-math.inf,
        )
        if placed and any(_waits_for_capacity(s.trial) for s in mine) and snapshot.now < left_at + PLACING_SECONDS:
            wakes.append(left_at + PLACING_SECONDS)
        elif placed:
            last = max(placed, key=lambda s: s.ranked.rank)
            text = "Its policy pauses it and ranks it last of the paused trials: another trial needs its slot."
            actions += ending(last.trial, STOPPED, "SlotNeeded", text)
    return PausedEnds(tuple(actions), min(wakes, default=None))


def _continues(standing: Standing, now: float) -> bool:
    """Return whether the trial runs, or will without this function.

    Examples: its pod has capacity, its back-off passes, or its user unsets spec.suspend.
    """
    trial = standing.trial
    has_pod = trial.pod is not None and not trial.pod.waits_for_capacity
    return not standing.paused and (has_pod or trial.attempts.retry_at > now or trial.intent.suspend)


def _waits_for_capacity(trial: TrialView) -> bool:
    return trial.pod is not None and trial.pod.waits_for_capacity


def _has_good_gpu(standing: Standing, gpus: Mapping[str, GpuView]) -> bool:
    """Return whether the trial's end frees a slot for another one of the job: not on an unhealthy GPU."""
    mine = [gpus[uuid] for uuid in standing.trial.gpus if uuid in gpus]
    return bool(mine) and all(fits(standing.job, gpu) for gpu in mine)
