"""Output of `podium watch` without a terminal: one line per change between two snapshots."""

from __future__ import annotations

from podium_cli.job_snapshot import JobSnapshot
from podium_cli.views import formatting
from podium_cli.views.watch import why


def changes(before: JobSnapshot | None, after: JobSnapshot) -> list[str]:
    """Return a line for each change from one snapshot to the next: job, trials, best value."""
    lines = [*_job_lines(before, after), *_trial_lines(before, after), *_best_lines(before, after)]
    stamp = after.now.strftime("%H:%M:%S")
    return [f"{stamp} {line}" for line in lines]


def _job_lines(before: JobSnapshot | None, after: JobSnapshot) -> list[str]:
    status = after.job.status
    old = before.job.status if before else None
    if old is not None and (old.phase, old.reason) == (status.phase, status.reason):
        return []
    why = ": ".join(part for part in (formatting.clean(status.reason), formatting.clean(status.message)) if part)
    return [f"job {after.job.metadata.name} {status.phase}" + (f" ({why})" if why else "")]


def _trial_lines(before: JobSnapshot | None, after: JobSnapshot) -> list[str]:
    known = {trial.metadata.uid: trial.status.phase for trial in before.trials} if before else {}
    lines = []
    for trial in after.trials:
        status = trial.status
        old = known.get(trial.metadata.uid)
        if old is status.phase:
            continue
        reason = why(trial)
        arrow = f"{old.value} -> {status.phase.value}" if old else status.phase.value
        rank = f" rank {status.rank}" if status.rank is not None else ""
        step = f" step {formatting.step(status.last_step)}" if status.last_step is not None else ""
        lines.append(f"{trial.metadata.name} {arrow}{rank}{step}" + (f" ({reason})" if reason else ""))
    return lines


def _best_lines(before: JobSnapshot | None, after: JobSnapshot) -> list[str]:
    best = after.best
    if best is None or best.status.best is None:
        return []
    old = before.best if before else None
    if old is not None and old.status.best is not None and old.status.best.value == best.status.best.value:
        return []
    metric = after.job.spec.objective.metric
    value = formatting.number(best.status.best.value)
    found = f"new best {metric} {value} by {best.metadata.name} at step {formatting.step(best.status.best.step)}"
    trials = formatting.count(after.job.spec.trials.max, "trial")
    rest = f"({formatting.parameters(best.spec.parameters)}), {after.done}/{trials} ended"
    return [f"{found} {rest}"]
