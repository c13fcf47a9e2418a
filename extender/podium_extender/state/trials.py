"""What the extender reads of a HyperParamTrial: how it ranks and what it would lose. Kept by `telemetry`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium_core.domain.unsaved_work import UnsavedWork, unsaved_work
from podium_core.schema.base import StatusModel


@dataclass(frozen=True, slots=True)
class SeenTrial:
    """`unsaved`: what it did since its last save, so what it would do again."""

    rank: int | None
    unsaved: UnsavedWork
    uid: str = ""


class _Saved(StatusModel):
    step: float
    gpu_seconds: float = 0.0


class _Losses(StatusModel):
    accounted_gpu_seconds: float = 0.0


class _Status(StatusModel):
    """A part of TrialStatus: the curve, which is most of a trial, is not parsed."""

    rank: int | None = None
    last_step: float | None = None
    checkpoint: _Saved | None = None
    lost_work: _Losses = _Losses()
    gpu_seconds: float = 0.0


def parse_trial(payload: Mapping[str, Any]) -> SeenTrial:
    status = _Status.model_validate(payload.get("status") or {})
    saved = status.checkpoint or _Saved(step=0.0)
    lost = unsaved_work(
        last_step=status.last_step,
        checkpoint_step=saved.step,
        gpu_seconds=status.gpu_seconds,
        checkpoint_gpu_seconds=saved.gpu_seconds,
        accounted_gpu_seconds=status.lost_work.accounted_gpu_seconds,
    )
    return SeenTrial(status.rank, lost, payload["metadata"].get("uid", ""))
