"""A job's additional metrics as commands and report show them. Pure.

Called by `podium watch --metrics`, `podium get trials`, `podium explain trial`, `podium summary` and the report. Which
there are is said by the job; a trial that has not printed one yet shows a dash.
"""

from __future__ import annotations

from podium_cli.views import formatting as texts
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import AdditionalMetric, HyperParamTrial


def names(job: HyperParamJob) -> tuple[str, ...]:
    return tuple(job.spec.objective.additional_metrics)


def latest(trial: HyperParamTrial, metric: str) -> str:
    """The value that the trial printed last."""
    found = next((one for one in trial.status.additional_metrics if one.metric == metric), None)
    return texts.NOTHING if found is None else _shown(found.latest)


def sentences(job: HyperParamJob, trial: HyperParamTrial) -> tuple[str, ...]:
    """One for each metric that the trial has printed, in the order of the job."""
    known = {one.metric: one for one in trial.status.additional_metrics}
    step = texts.clean(job.spec.metrics.step_key)
    return tuple(_sentence(known[name], step) for name in names(job) if name in known)


def _sentence(one: AdditionalMetric, step: str) -> str:
    now = f"{texts.clean(one.metric)} {_shown(one.latest)} at {step} {texts.step(one.step)}"
    if one.min is None or one.max is None:
        return now
    low = f"lowest {texts.number(one.min)} at {texts.step(one.min_step)}"
    return f"{now} ({low}, highest {texts.number(one.max)} at {texts.step(one.max_step)})"


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else texts.number(value)
