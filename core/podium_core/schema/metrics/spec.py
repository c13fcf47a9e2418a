"""Part `metrics` of a HyperParamJob's spec: where the values are read, and how."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from podium_core.schema.base import SpecModel


class MetricsSpec(SpecModel):
    """Where the learning curve comes from."""

    source: Literal["stdout", "file", "tensorboard", "prometheus", "push"] = Field(
        "stdout",
        description="Where the values are read. stdout: the output of the trial. file: a file in its container. "
        "tensorboard: a folder with event files. push: `podium.trial` sends the values to the agent. prometheus: a "
        "page that the pod serves. All but stdout need a GPU, because the agent of the trial's node reads them.",
    )
    path: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="Path in the container: of the file (file) or of the folder with event files (tensorboard). It is "
        "absolute, or relative to checkpoint.path, which is a folder of each trial's own. With prometheus, the path of "
        "the page; default: /metrics.",
    )
    port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="Port of the pod at which it serves its values (prometheus only). The trial "
        "gets it as `$(podium.metricsPort)` and in `PODIUM_METRICS_PORT`.",
    )
    period_seconds: int | None = Field(
        None, ge=5, le=3600, description="Seconds between two reads of the page (prometheus only). Default: 15."
    )
    format: Literal["json", "text", "huggingface", "csv"] = Field(
        "json",
        description="Format of the lines (stdout and file only). json: one object per line; text: name=value; "
        "huggingface: the dictionary that Trainer prints; csv: a table whose first line holds the names (file only).",
    )
    filter: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        description="Regular expression with the groups name and value (format text only).",
    )
    step_key: str = Field(
        "step", min_length=1, max_length=128, description="Name of the step in the output of the trial."
    )
