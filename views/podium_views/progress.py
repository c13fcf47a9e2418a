"""Progress of a search and the reasons of its trials, as text and numbers."""

from __future__ import annotations

from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_views import formatting
from podium_views.job_snapshot import JobSnapshot


def fraction_done(snapshot: JobSnapshot) -> float:
    """Return the completed part of the job, from 0 to 1."""
    if snapshot.job.status.phase == "Succeeded":
        return 1.0
    spec = snapshot.job.spec.trials
    total = float(snapshot.done)
    for trial in snapshot.trials:
        step = trial.status.last_step
        if trial.status.finished_at is None and step is not None and spec.max_steps:
            total += min(step / spec.max_steps, 1.0) * 0.99
    return min(total / snapshot.total, 1.0)


def eta_text(snapshot: JobSnapshot) -> str:
    """Return the expected end of the job, or its duration if it has ended."""
    status = snapshot.job.status
    if status.finished_at is not None:
        return f"took {formatting.since(status.started_at, status.finished_at)}"
    if status.eta is None:
        return "ETA unknown"
    left = (status.eta - snapshot.now).total_seconds()
    return f"ETA {formatting.duration(left)}" if left >= 1 else "any moment now"


def why(trial: HyperParamTrial) -> str:
    """Return the reason of the trial's phase: its code, its sentence, or both."""
    return formatting.cause(trial.status.reason, trial.status.message)


def lowered(total: int, most: int) -> str:
    """Return a remark on a search that has more trials than trials.max allows now; empty for any other."""
    return f" (trials.max is {most} now; no trial is removed)" if total > most else ""


def trials_done(job: HyperParamJob) -> int:
    """Return the number of trials that have ended; the operator writes it as `done/max`."""
    count = job.status.done.partition("/")[0]
    return int(count) if count.isdecimal() else 0


def gpus_in_use(job: HyperParamJob) -> int:
    """Return the number of GPUs that the job's running trials hold."""
    return job.status.trials.running * job.spec.gpus.per_trial
