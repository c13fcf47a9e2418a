"""New trials up to `max` and `parallel`, and pods for trials without one where the job has shares left and back-off
has passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from podium_core.domain.actions import Action, CreatePod, CreateTrial
from podium_core.domain.fitting import fits
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import GpuView, JobKey, JobView, Snapshot, TrialKey, TrialView
from podium_core.planning.completion import Closing
from podium_core.planning.pod_quota import PodQuota
from podium_core.planning.ranking import Standing

RESERVE = 4  # GPUs for each trial of a searcher that learns that is made before it is wanted
_BEFORE_WORK = frozenset({TrialPhase.PENDING, TrialPhase.GATED})


@dataclass(frozen=True, slots=True)
class Creation:
    actions: tuple[Action, ...]
    waiting: Mapping[TrialKey, tuple[str, str]]  # trials that get no pod now: reason, message
    wake_at: float | None


def create(
    snapshot: Snapshot,
    allotments: Mapping[JobKey, PodQuota],
    closing: Closing,
    standings: Mapping[TrialKey, Standing],
    claims: Collection[TrialKey],
) -> Creation:
    """Pinned trials and retries first, then by number; where trials give places to each other, by rank. `claims`: who
    is to hold its GPUs now. O(n log n).
    """
    actions: list[Action] = []
    waiting: dict[TrialKey, tuple[str, str]] = {}
    wake: list[float] = []
    taken: set[str] = set()
    if any(job.learns for job in snapshot.jobs):
        taken.update(uuid for trial in snapshot.trials if trial.key in claims for uuid in trial.gpus)
    for job in sorted(snapshot.jobs, key=lambda j: (j.created, j.key)):
        if job.key in closing.jobs:
            continue
        live = closing.live.get(job.key, ())
        without = _in_turn([t for t in live if t.pod is None], standings if job.reclaims_slots else None)
        allotment = allotments.get(job.key)
        if allotment is None:
            reason = (
                ("JobSuspended", "The job is suspended.")
                if job.suspended
                else ("JobNotActive", "The job starts nothing.")
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
        room = _room_to_learn(job, live, snapshot, claims, taken) if job.learns else None
        actions += _trials(job, closing.trials_by_job.get(job.key, ()), live, allotment, room)
    return Creation(tuple(actions), waiting, min(wake, default=None))


def _in_turn(without: Iterable[TrialView], standings: Mapping[TrialKey, Standing] | None) -> list[TrialView]:
    """Who gets a pod first."""
    if standings is None:
        return sorted(without, key=lambda t: (not t.pinned, t.attempt == 0, t.number, t.key))
    return sorted(
        without, key=lambda t: (not t.pinned, standings[t.key].ranked.rank if t.key in standings else 0, t.key)
    )


def _pod(trial: TrialView, allotment: PodQuota) -> CreatePod:
    again = trial.phase is TrialPhase.REQUEUED
    attempt = trial.attempt + 1 if again else trial.attempt
    text = f"Attempt {attempt}: a share is free; the job may have {allotment.pods} pods."
    return CreatePod(trial.key, attempt, "Requeued" if again else "SlotAvailable", text)


def _room_to_learn(
    job: JobView,
    live: Sequence[TrialView],
    snapshot: Snapshot,
    claims: Collection[TrialKey],
    taken: Collection[str],
) -> int:
    """How many trials a searcher that learns may add: one for each place that nobody has or is to have now, and one in
    `RESERVE` places beside them, so that a pod is there when the policy wants to open another; less those that may open
    there. One that waits on a GPU where others work does not go to an idle one.
    """
    if job.gpus_per_trial == 0:
        return job.max_trials
    fitting = {gpu.uuid: gpu for gpu in snapshot.gpus if fits(job, gpu)}
    idle = Counter(gpu.node for gpu in fitting.values() if gpu.uuid not in taken and _is_idle(gpu))
    places = sum(gpus // job.gpus_per_trial for gpus in idle.values())
    reserve = max(1, len(fitting) // (RESERVE * job.gpus_per_trial))
    waiting = sum(trial.key not in claims and _is_to_open(job, trial, fitting, snapshot.now) for trial in live)
    return places + reserve - waiting


def _is_idle(gpu: GpuView) -> bool:
    """Whether a new pod would find nobody at work there."""
    return gpu.holder is None and gpu.free_slots > 0 and gpu.health == "Healthy" and gpu.exclusive_pod is None


def _is_to_open(job: JobView, trial: TrialView, fitting: Collection[str], now: float) -> bool:
    """Not if its owner keeps it off the GPU, nor if its GPU is of no use now; one that has its GPUs and was opened
    takes its turns there, and one that gave its place waits for a better rank.
    """
    if trial.suspend:
        return False
    if not trial.gpus:
        return trial.retry_at <= now and not (job.reclaims_slots and _was_opened(trial))
    return not _was_opened(trial) and trial.phase in _BEFORE_WORK and all(uuid in fitting for uuid in trial.gpus)


def _was_opened(trial: TrialView) -> bool:
    return bool(trial.curve) or trial.gpu_seconds > 0.0


def _trials(
    job: JobView, mine: Sequence[TrialView], live: Sequence[TrialView], allotment: PodQuota, most: int | None
) -> list[Action]:
    """With `parallel: auto` as many as there are pods allowed; where trials give places to each other, as many again
    that are not opened yet, and those that gave theirs. `most`: no more than so many now.
    """
    bound = allotment.pods if job.parallel is None else job.parallel
    if job.parallel is None and job.reclaims_slots:
        bound += allotment.pods + sum(t.pod is None and _was_opened(t) for t in live)
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
    return [
        CreateTrial(job.key, number, "CapacityAvailable", text) for number, _ in zip(numbers, range(room), strict=False)
    ]
