"""Additional metrics of a job as text, for tables, sentences and the report.

The job names the metrics. A trial that has not printed a metric yet shows a dash.
"""

from __future__ import annotations

from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import AdditionalMetric, HyperParamTrial
from podium_views import formatting


def names(job: HyperParamJob) -> tuple[str, ...]:
    """Return the names of the job's additional metrics."""
    return tuple(job.spec.objective.additional_metrics)


def latest(trial: HyperParamTrial, metric: str) -> str:
    """Return the value that the trial printed last, or a dash."""
    summary = next((one for one in trial.status.additional_metrics if one.metric == metric), None)
    return formatting.NOTHING if summary is None else _shown(summary.latest)


def sentences(job: HyperParamJob, trial: HyperParamTrial) -> tuple[str, ...]:
    """Return a sentence for each metric that the trial has printed, in the order of the job."""
    known = {one.metric: one for one in trial.status.additional_metrics}
    step = formatting.clean(job.spec.metrics.step_key)
    return tuple(_sentence(known[name], step) for name in names(job) if name in known)


def _sentence(one: AdditionalMetric, step: str) -> str:
    now = f"{formatting.clean(one.metric)} {_shown(one.latest)} at {step} {formatting.step(one.step)}"
    if one.min is None or one.max is None:
        return now
    low = f"lowest {formatting.number(one.min)} at {formatting.step(one.min_step)}"
    return f"{now} ({low}, highest {formatting.number(one.max)} at {formatting.step(one.max_step)})"


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else formatting.number(value)
