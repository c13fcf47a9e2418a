"""Remaining time of a trial and of a job: GPU-seconds per step times remaining steps.

The estimate is simple on purpose, and its message gives its assumptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from podium_core.domain.fitting import fits
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.phrases import count
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.exploitation import founders_to_come
from podium_core.planning.slots.pod_quota import CPU_ONLY_PARALLEL

END_OF_CALENDAR = datetime(9999, 12, 31, tzinfo=UTC).timestamp()  # Python and RFC 3339 have four-digit years


@dataclass(frozen=True, slots=True)
class Eta:
    """Estimated remaining seconds, with a message."""

    seconds: float | None
    message: str


def pace(job: JobView, trial: TrialView) -> float | None:
    """Return the seconds on its GPUs that a trial takes for one unit of its step.

    None before it has made progress.
    """
    if not trial.curve or trial.usage.gpu_seconds <= 0.0:
        return None
    steps = trial.curve[-1].step - trial.first_step
    return trial.usage.gpu_seconds / max(1, job.gpus.per_trial) / steps if steps > 0.0 else None


def typical_pace(job: JobView, trials: Sequence[TrialView]) -> float | None:
    """Return the median pace of the trials; None if no trial has made progress."""
    width = max(1, job.gpus.per_trial)
    paces = [  # `pace` inlined, since each plan computes it for all trials
        t.usage.gpu_seconds / width / steps
        for t in trials
        if t.curve and t.usage.gpu_seconds > 0.0 and (steps := t.curve[-1].step - t.first_step) > 0.0
    ]
    return median(paces) if paces else None


def remaining(job: JobView, trial: TrialView, usual: Callable[[], float | None]) -> float | None:
    """Return the seconds on its GPUs until the trial has done maxSteps; None if that is unknown.

    `usual`: returns the pace of its job, used if the trial has none.
    """
    if job.max_steps is None:
        return None
    own = pace(job, trial)
    rate = usual() if own is None else own
    if rate is None:
        return None
    done = trial.curve[-1].step if trial.curve else trial.first_step
    return max(0.0, job.max_steps - done) * rate


def estimate(job: JobView, snapshot: Snapshot) -> Eta:
    """Estimate the time to the end of the job if it keeps its GPUs. O(trials of the job + GPUs).

    It is the remaining training of all trials, divided by the GPUs that the job can use. Future children of a
    population do not count: each one replaces a trial that would train as far.
    """
    if job.state.finished:
        return Eta(0.0, "The job is finished.")
    trials = snapshot.trials_by_job.get(job.key, ())
    live = [t for t in trials if t.phase not in FINAL]
    usual = typical_pace(job, trials)
    whole = _whole_trial(job, trials, usual)
    if whole is None:
        return Eta(None, "No trial has shown yet how long it takes.")
    left = 0.0
    for trial in live:
        own = remaining(job, trial, lambda: usual)
        left += max(0.0, whole - trial.usage.gpu_seconds / max(1, job.gpus.per_trial)) if own is None else own
    to_come = founders_to_come(job, trials)
    left += to_come * whole
    width = _width(job, snapshot)
    if width == 0:
        return Eta(None, "There is no GPU that fits this job.")
    width = max(1, min(width, len(live) + to_come))
    text = f"{left:.0f} s of training are left for {count(len(live) + to_come, 'trial')}, {width} at a time."
    return Eta(left / width, text)


def _whole_trial(job: JobView, trials: Sequence[TrialView], usual: float | None) -> float | None:
    if job.max_steps is not None and usual is not None:
        return job.max_steps * usual
    complete = [t.usage.gpu_seconds / max(1, job.gpus.per_trial) for t in trials if t.phase is TrialPhase.SUCCEEDED]
    return median(complete) if complete and max(complete) > 0.0 else None


def _width(job: JobView, snapshot: Snapshot) -> int:
    """Return how many trials can run at once."""
    if job.gpus.per_trial == 0:
        return job.limits.parallel or CPU_ONLY_PARALLEL
    capacity = sum(fits(job, gpu) for gpu in snapshot.gpus) // job.gpus.per_trial
    return capacity if job.limits.parallel is None else min(capacity, job.limits.parallel)
