"""How to read a trial's log: stamped on the pod by the operator as one annotation, parsed by the agent."""

from __future__ import annotations

from typing import Literal

from podium_core.schema.base import StatusModel
from podium_core.schema.job import Direction

READING_ANNOTATION = "podium.dev/metrics"


class MetricsReading(StatusModel):
    metric: str
    direction: Direction
    step_key: str = "step"
    format: Literal["json", "text", "huggingface"] = "json"
    filter: str | None = None
    additional: tuple[str, ...] = ()
    container: str
