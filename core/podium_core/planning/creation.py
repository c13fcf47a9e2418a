"""Creation of trials up to `max` and `parallel`, and of pods for trials without one.

A trial gets a pod if its job may have another one and its back-off has passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from podium_core.domain.actions import Action, CreatePod, CreateTrial
from podium_core.domain.fitting import fits, trials_that_fit
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.completion import Closing
from podium_core.planning.exploitation import exploit, founders
from podium_core.planning.ranking import Standing
from podium_core.planning.slots.pod_quota import PodQuota

RESERVE = 4  # GPUs for each trial that a learning searcher creates in advance
_BEFORE_WORK = frozenset({TrialPhase.PENDING, TrialPhase.GATED})


@dataclass(frozen=True, slots=True)
class Creation:
    """Trials and pods to create, and the reason of each trial that gets no pod."""

    actions: tuple[Action, ...]
    waiting: Mapping[TrialKey, tuple[str, str]]  # trials that get no pod now, with reason and message
    wake_at: float | None


def create(
    snapshot: Snapshot,
    quotas: Mapping[JobKey, PodQuota],
    closing: Closing,
    standings: Mapping[TrialKey, Standing],
    claims: Collection[TrialKey],
) -> Creation:
    """Create pods and trials. O(n log n).

    Pinned trials and retries come first, then the order of numbers; by rank if trials of the job reclaim slots.
    `claims`: trials that are to hold their GPUs now.
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
        without = _by_priority([t for t in live if t.pod is None], standings if job.reclaims_slots else None)
        quota = quotas.get(job.key)
        if quota is None:
            reason = (
                ("JobSuspended", "The job is suspended.")
                if job.state.suspended
                else ("JobNotActive", "The job starts no trials.")
            )
            waiting.update({t.key: reason for t in without})
            continue
        left = quota.pods - sum(t.pod is not None for t in live)
        for trial in without:
            if trial.intent.suspend:
                waiting[trial.key] = ("TrialSuspended", "spec.suspend is set: the trial gets no pod.")
            elif trial.attempts.retry_at > snapshot.now:
                why = (
                    f"Failure {trial.attempts.failures} of {job.limits.retries} that are retried"
                    if trial.attempts.failures
                    else "The cluster ended or rejected its pod repeatedly"
                )
                waiting[trial.key] = ("BackOff", f"{why}; a pause precedes the next one.")
                wake.append(trial.attempts.retry_at)
            elif left <= 0:
                waiting[trial.key] = (quota.reason, quota.message)
            else:
                left -= 1
                actions.append(_pod(trial, quota))
        capacity = _learning_capacity(job, live, snapshot, claims, taken) if job.learns else None
        mine = closing.trials_by_job.get(job.key, ())
        actions += _trials(job, mine, live, quota, capacity)
        actions += [
            CreateTrial(job.key, one.number, "Exploit", one.message, one.lineage)
            for one in exploit(job, mine, {t.key for t in live})
        ]
    return Creation(tuple(actions), waiting, min(wake, default=None))


def _by_priority(without: Iterable[TrialView], standings: Mapping[TrialKey, Standing] | None) -> list[TrialView]:
    """Return the trials without a pod, in the order in which they get one."""
    if standings is None:
        return sorted(without, key=lambda t: (not t.intent.pinned, t.attempts.number == 0, t.number, t.key))
    return sorted(
        without, key=lambda t: (not t.intent.pinned, standings[t.key].ranked.rank if t.key in standings else 0, t.key)
    )


def _pod(trial: TrialView, quota: PodQuota) -> CreatePod:
    continues = trial.phase is TrialPhase.REQUEUED
    attempt = trial.attempts.number + 1 if continues else trial.attempts.number
    text = f"Attempt {attempt}: a slot is free; the job may have {quota.pods} pods."
    return CreatePod(trial.key, attempt, "Requeued" if continues else "SlotAvailable", text)


def _learning_capacity(
    job: JobView,
    live: Sequence[TrialView],
    snapshot: Snapshot,
    claims: Collection[TrialKey],
    taken: Collection[str],
) -> int:
    """Return how many trials a learning searcher may add.

    It may add one for each group of idle GPUs that no trial is to get. It may add one more for each `RESERVE` groups,
    so that a pod exists when the policy starts another trial. The trials that may start there are subtracted. A trial
    that waits on a busy GPU does not move to an idle one.
    """
    if job.gpus.per_trial == 0:
        return job.limits.max_trials
    fitting = {gpu.uuid: gpu for gpu in snapshot.gpus if fits(job, gpu)}
    idle = Counter(gpu.node for gpu in fitting.values() if gpu.uuid not in taken and _is_idle(gpu))
    slots = trials_that_fit(job.gpus, ([1] * gpus for gpus in idle.values()))
    reserve = max(1, len(fitting) // (RESERVE * job.gpus.per_trial))
    waiting = sum(trial.key not in claims and _may_start(job, trial, fitting, snapshot.now) for trial in live)
    return slots + reserve - waiting


def _is_idle(gpu: GpuView) -> bool:
    """Return whether a new pod could run there at once."""
    unused = gpu.holder is None and gpu.availability.exclusive_pod is None
    return unused and gpu.free_slots > 0 and gpu.health == "Healthy"


def _may_start(job: JobView, trial: TrialView, fitting: Collection[str], now: float) -> bool:
    """Return whether the trial may start on an idle GPU.

    It may not if it is suspended, or if its GPU cannot be used now. A started trial with GPUs gets its time slices
    there, and one whose slot was reclaimed waits for a better rank.
    """
    if trial.intent.suspend:
        return False
    if not trial.gpus:
        return trial.attempts.retry_at <= now and not (job.reclaims_slots and _was_started(trial))
    return not _was_started(trial) and trial.phase in _BEFORE_WORK and all(uuid in fitting for uuid in trial.gpus)


def _was_started(trial: TrialView) -> bool:
    return bool(trial.curve) or trial.usage.gpu_seconds > 0.0


def _trials(
    job: JobView, mine: Sequence[TrialView], live: Sequence[TrialView], quota: PodQuota, most: int | None
) -> list[Action]:
    """Create as many trials as pods are allowed, with `parallel: auto`.

    If trials of the job reclaim slots: twice as many, plus the trials whose slots were reclaimed. `most`: upper limit
    for now.
    """
    most_trials = founders(job)
    mine = [t for t in mine if t.origin.lineage is None]
    bound = quota.pods if job.limits.parallel is None else job.limits.parallel
    if job.limits.parallel is None and job.reclaims_slots:
        bound += quota.pods + sum(t.pod is None and _was_started(t) for t in live)
    capacity = min(bound - len(live), most_trials - len(mine))
    if most is not None:
        capacity = min(capacity, most)
    if capacity <= 0:
        return []
    taken = {t.number for t in mine}
    numbers = (n for n in range(most_trials) if n not in taken)
    text = f"{len(live)} of at most {bound} trials at a time are unfinished, {len(mine)} of {most_trials} are created."
    return [
        CreateTrial(job.key, number, "CapacityAvailable", text)
        for number, _ in zip(numbers, range(capacity), strict=False)
    ]
