"""`podium watch` where there is no terminal: one line per change. Pure: two pictures -> the lines between them."""

from __future__ import annotations

from podium_cli.job_picture import JobPicture
from podium_cli.views import formatting as texts
from podium_cli.views.watch import why


def changes(before: JobPicture | None, after: JobPicture) -> list[str]:
    """What a person would want to know of the way from one picture to the next, oldest cause first."""
    lines = [*_job_lines(before, after), *_trial_lines(before, after), *_best_lines(before, after)]
    stamp = after.now.strftime("%H:%M:%S")
    return [f"{stamp} {line}" for line in lines]


def _job_lines(before: JobPicture | None, after: JobPicture) -> list[str]:
    status = after.job.status
    old = before.job.status if before else None
    if old is not None and (old.phase, old.reason) == (status.phase, status.reason):
        return []
    told = ": ".join(part for part in (texts.clean(status.reason), texts.clean(status.message)) if part)
    return [f"job {after.job.metadata.name} {status.phase}" + (f" ({told})" if told else "")]


def _trial_lines(before: JobPicture | None, after: JobPicture) -> list[str]:
    known = {trial.metadata.uid: trial.status.phase for trial in before.trials} if before else {}
    lines = []
    for trial in after.trials:
        status = trial.status
        old = known.get(trial.metadata.uid)
        if old is status.phase:
            continue
        told = why(trial)
        arrow = f"{old.value} -> {status.phase.value}" if old else status.phase.value
        rank = f" rank {status.rank}" if status.rank is not None else ""
        step = f" step {texts.step(status.last_step)}" if status.last_step is not None else ""
        lines.append(f"{trial.metadata.name} {arrow}{rank}{step}" + (f" ({told})" if told else ""))
    return lines


def _best_lines(before: JobPicture | None, after: JobPicture) -> list[str]:
    best = after.best
    if best is None or best.status.best is None:
        return []
    old = before.best if before else None
    if old is not None and old.status.best is not None and old.status.best.value == best.status.best.value:
        return []
    metric = after.job.spec.objective.metric
    value = texts.number(best.status.best.value)
    found = f"new best {metric} {value} by {best.metadata.name} at step {texts.step(best.status.best.step)}"
    trials = texts.count(after.job.spec.trials.max, "trial")
    told = f"({texts.parameters(best.spec.parameters)}), {after.done}/{trials} done"
    return [f"{found} {told}"]
