"""Instructions to read a trial's metrics: an annotation that the operator writes on the pod and the agent reads."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field

from podium_core.schema.base import StatusModel
from podium_core.schema.job import Direction, HyperParamJob

METRICS_ANNOTATION = "podium.dev/metrics"
PAGE = "/metrics"
PERIOD_SECONDS = 15
MAX_PATH = 2048  # characters: checkpoint.path, and a path relative to it


class MetricsConfig(StatusModel):
    """What to read of one trial, from where, and how.

    `path`: absolute path in the container (file, tensorboard), or of the page (prometheus).
    """

    metric: str
    direction: Direction
    source: Literal["stdout", "file", "tensorboard", "prometheus", "push"] = "stdout"
    step_key: str = "step"
    format: Literal["json", "text", "huggingface", "csv"] = "json"
    filter: str | None = None
    path: str = Field("", max_length=MAX_PATH)
    port: int = Field(0, ge=0, le=65535)
    period_seconds: int = Field(PERIOD_SECONDS, ge=5, le=3600)
    additional: tuple[str, ...] = ()
    container: str


def metrics_config_of(job: HyperParamJob) -> MetricsConfig:
    """Return how to read a trial's metrics; its container is the template's first one."""
    spec, metrics = job.spec, job.spec.metrics
    path = metrics.path or (PAGE if metrics.source == "prometheus" else "")
    if path and spec.checkpoint is not None:
        path = str(PurePosixPath(spec.checkpoint.path) / path)  # an absolute path remains as it is
    return MetricsConfig(
        metric=spec.objective.metric,
        direction=spec.objective.direction,
        source=metrics.source,
        step_key=metrics.step_key,
        format=metrics.format,
        filter=metrics.filter,
        path=path,
        port=metrics.port or 0,
        period_seconds=metrics.period_seconds or PERIOD_SECONDS,
        additional=tuple(spec.objective.additional_metrics),
        container=spec.template["spec"]["containers"][0]["name"],
    )
