"""New trials up to `max` and `parallel`, and pods for trials without one where the job has shares left and back-off
has passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podium.domain.actions import Action, CreatePod, CreateTrial
from podium.domain.phase import TrialPhase
from podium.domain.snapshot import GpuView, JobKey, JobView, Snapshot, TrialKey, TrialView
from podium.planning.completion import Closing
from podium.planning.share import Allotment, fits

RESERVE = 4  # GPUs for each trial of a searcher that learns that is made before it is wanted
_BEFORE_WORK = frozenset({TrialPhase.PENDING, TrialPhase.GATED})


@dataclass(frozen=True, slots=True)
class Creation:
    actions: tuple[Action, ...]
    waiting: Mapping[TrialKey, tuple[str, str]]  # trials that get no pod now: reason, message
    wake_at: float | None


def create(snapshot: Snapshot, allotments: Mapping[JobKey, Allotment], closing: Closing) -> Creation:
    """Retries and pinned trials first, then by number. O(n log n)."""
    actions: list[Action] = []
    waiting: dict[TrialKey, tuple[str, str]] = {}
    wake: list[float] = []
    for job in sorted(snapshot.jobs, key=lambda j: (j.created, j.key)):
        if job.key in closing.jobs:
            continue
        live = closing.live.get(job.key, ())
        without = sorted(
            (t for t in live if t.pod is None), key=lambda t: (not t.pinned, t.attempt == 0, t.number, t.key)
        )
        allotment = allotments.get(job.key)
        if allotment is None:
            reason = (
                ("JobSuspended", "The job is suspended.")
                if job.suspended
                else ("JobNotOpen", "The job starts nothing.")
            )
            waiting.update({t.key: reason for t in without})
            continue
        left = allotment.pods - sum(t.pod is not None for t in live)
        for trial in without:
            if trial.suspend:
                waiting[trial.key] = ("TrialSuspended", "spec.suspend is set: the trial gets no pod.")
            elif trial.retry_at > snapshot.now:
                text = (
                    f"Failure {trial.failures} of {job.retries} that are retried; waiting before the next attempt."
                    if trial.failures
                    else "The cluster refused its pod more than once; waiting before the next attempt."
                )
                waiting[trial.key] = ("BackOff", text)
                wake.append(trial.retry_at)
            elif left <= 0:
                waiting[trial.key] = (allotment.reason, allotment.message)
            else:
                left -= 1
                actions.append(_pod(trial, allotment))
        room = _room_to_learn(job, live, snapshot.gpus) if job.learns else None
        actions += _trials(job, closing.of_job.get(job.key, ()), live, allotment, room)
    return Creation(tuple(actions), waiting, min(wake, default=None))


def _pod(trial: TrialView, allotment: Allotment) -> CreatePod:
    again = trial.phase is TrialPhase.REQUEUED
    attempt = trial.attempt + 1 if again else trial.attempt
    text = f"Attempt {attempt}: a share is free; the job may have {allotment.pods} pods."
    return CreatePod(trial.key, attempt, "Requeued" if again else "ShareFree", text)


def _room_to_learn(job: JobView, live: Sequence[TrialView], gpus: Sequence[GpuView]) -> int:
    """How many trials a searcher that learns may add: one for each place where nobody works, and one in `RESERVE`
    places beside them, so that a pod is there when the policy wants to open another; less those that nobody has opened.
    """
    if job.gpus_per_trial == 0:
        return job.max_trials
    fitting = [gpu for gpu in gpus if fits(job, gpu)]
    idle = sum(gpu.holder is None for gpu in fitting) // job.gpus_per_trial
    reserve = max(1, len(fitting) // (RESERVE * job.gpus_per_trial))
    return max(idle, reserve) - sum(_unopened(trial) for trial in live)


def _unopened(trial: TrialView) -> bool:
    """One that its owner keeps off the GPU would keep it idle."""
    return not trial.suspend and not trial.curve and not trial.gpu_seconds and trial.phase in _BEFORE_WORK


def _trials(
    job: JobView, mine: Sequence[TrialView], live: Sequence[TrialView], allotment: Allotment, most: int | None
) -> list[Action]:
    """With `parallel: auto` as many as there are pods allowed. `most`: no more than so many now."""
    bound = allotment.pods if job.parallel is None else job.parallel
    room = min(bound - len(live), job.max_trials - len(mine))
    if most is not None:
        room = min(room, most)
    if room <= 0:
        return []
    taken = {t.number for t in mine}
    numbers = (n for n in range(job.max_trials) if n not in taken)
    text = (
        f"{len(live)} of at most {bound} trials at a time are unfinished, {len(mine)} of {job.max_trials} are created."
    )
    return [CreateTrial(job.key, number, "RoomForTrial", text) for number, _ in zip(numbers, range(room), strict=False)]
