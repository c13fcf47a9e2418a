"""Instructions to read metrics from a log: an annotation that the operator writes on the pod and the agent reads."""

from __future__ import annotations

from typing import Literal

from podium_core.schema.base import StatusModel
from podium_core.schema.job import Direction, HyperParamJob

METRICS_ANNOTATION = "podium.dev/metrics"


class MetricsConfig(StatusModel):
    """What to read from the log of one trial, and how."""

    metric: str
    direction: Direction
    step_key: str = "step"
    format: Literal["json", "text", "huggingface"] = "json"
    filter: str | None = None
    additional: tuple[str, ...] = ()
    container: str


def metrics_config_of(job: HyperParamJob) -> MetricsConfig:
    """Return how to read a trial's log; the log is that of the template's first container."""
    spec = job.spec
    return MetricsConfig(
        metric=spec.objective.metric,
        direction=spec.objective.direction,
        step_key=spec.metrics.step_key,
        format=spec.metrics.format,
        filter=spec.metrics.filter,
        additional=tuple(spec.objective.additional_metrics),
        container=spec.template["spec"]["containers"][0]["name"],
    )
