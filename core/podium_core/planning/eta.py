"""How long a trial and a job will still take: from GPU seconds a step and what is left. Simple on purpose, and says
what it assumes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from podium_core.domain.fitting import fits
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.phrases import count
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.pod_quota import CPU_ONLY_PARALLEL


@dataclass(frozen=True, slots=True)
class Eta:
    seconds: float | None
    message: str


def pace(job: JobView, trial: TrialView) -> float | None:
    """Seconds on its GPUs that a trial takes for one unit of its step; None before it has shown any progress."""
    if not trial.curve or trial.gpu_seconds <= 0.0:
        return None
    steps = trial.curve[-1].step
    return trial.gpu_seconds / max(1, job.gpus_per_trial) / steps if steps > 0.0 else None


def typical_pace(job: JobView, trials: Sequence[TrialView]) -> float | None:
    width = max(1, job.gpus_per_trial)
    paces = [  # `pace` of each, without a call of its own: a plan does it for all trials
        t.gpu_seconds / width / steps
        for t in trials
        if t.curve and t.gpu_seconds > 0.0 and (steps := t.curve[-1].step) > 0.0
    ]
    return median(paces) if paces else None


def remaining(job: JobView, trial: TrialView, usual: Callable[[], float | None]) -> float | None:
    """Seconds on its GPUs until the trial has done maxSteps; None where that cannot be said. `usual`: the pace of its
    job, asked where it has shown none.
    """
    if job.max_steps is None:
        return None
    own = pace(job, trial)
    rate = usual() if own is None else own
    if rate is None:
        return None
    done = trial.curve[-1].step if trial.curve else 0.0
    return max(0.0, job.max_steps - done) * rate


def estimate(job: JobView, snapshot: Snapshot) -> Eta:
    """Time to the end of the job if its GPUs stay its own: all that is left, over the GPUs that it can use. O(its
    trials + GPUs).
    """
    if job.finished:
        return Eta(0.0, "The job is finished.")
    trials = snapshot.trials_by_job.get(job.key, ())
    live = [t for t in trials if t.phase not in FINAL]
    usual = typical_pace(job, trials)
    whole = _whole_trial(job, trials, usual)
    if whole is None:
        return Eta(None, "No trial has shown how long it takes yet.")
    left = 0.0
    for trial in live:
        own = remaining(job, trial, lambda: usual)
        left += max(0.0, whole - trial.gpu_seconds / max(1, job.gpus_per_trial)) if own is None else own
    to_come = max(0, job.max_trials - len(trials))
    left += to_come * whole
    width = _width(job, snapshot)
    if width == 0:
        return Eta(None, "No GPU that fits this job is there.")
    width = max(1, min(width, len(live) + to_come))
    text = f"{left:.0f} s of training are left for {count(len(live) + to_come, 'trial')}, {width} at a time."
    return Eta(left / width, text)


def _whole_trial(job: JobView, trials: Sequence[TrialView], usual: float | None) -> float | None:
    if job.max_steps is not None and usual is not None:
        return job.max_steps * usual
    complete = [t.gpu_seconds / max(1, job.gpus_per_trial) for t in trials if t.phase is TrialPhase.SUCCEEDED]
    return median(complete) if complete and max(complete) > 0.0 else None


def _width(job: JobView, snapshot: Snapshot) -> int:
    """How many trials can be at work at once."""
    if job.gpus_per_trial == 0:
        return job.parallel or CPU_ONLY_PARALLEL
    room = sum(fits(job, gpu) for gpu in snapshot.gpus) // job.gpus_per_trial
    return room if job.parallel is None else min(room, job.parallel)
