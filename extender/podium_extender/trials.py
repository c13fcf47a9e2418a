"""What the extender reads of a HyperParamTrial: how it ranks and what it would lose. Kept by `telemetry`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.schema.base import StatusModel


@dataclass(frozen=True, slots=True)
class SeenTrial:
    """`unsaved_steps`, `unsaved_seconds` (GPU-seconds): what it did since its last save, so what it would do again."""

    rank: int | None
    unsaved_steps: float
    unsaved_seconds: float


class _Saved(StatusModel):
    step: float
    gpu_seconds: float = 0.0


class _Losses(StatusModel):
    counted_to: float = 0.0


class _Status(StatusModel):
    """A part of TrialStatus: the curve, which is most of a trial, is not parsed."""

    rank: int | None = None
    last_step: float | None = None
    saved: _Saved | None = None
    losses: _Losses = _Losses()
    gpu_seconds: float = 0.0


def parse_trial(payload: Mapping[str, Any]) -> SeenTrial:
    status = _Status.model_validate(payload.get("status") or {})
    saved = status.saved or _Saved(step=0.0)
    counted = max(saved.gpu_seconds, status.losses.counted_to)
    return SeenTrial(
        rank=status.rank,
        unsaved_steps=max(0.0, (status.last_step or 0.0) - saved.step),
        unsaved_seconds=max(0.0, status.gpu_seconds - counted),
    )
