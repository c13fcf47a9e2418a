"""Instructions to read metrics from a log: an annotation that the operator writes on the pod and the agent reads."""

from __future__ import annotations

from typing import Literal

from podium_core.schema.base import StatusModel
from podium_core.schema.job import Direction

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
