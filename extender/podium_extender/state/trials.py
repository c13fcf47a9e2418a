"""The part of a HyperParamTrial that the extender reads: its rank, and the work that a preemption would lose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium_core.domain.unsaved_work import UnsavedWork, unsaved_work
from podium_core.schema.base import StatusModel


@dataclass(frozen=True, slots=True)
class TrialState:
    """The state of a trial; `unsaved` is the work since its last checkpoint."""

    rank: int | None
    unsaved: UnsavedWork
    uid: str = ""


class _Checkpoint(StatusModel):
    step: float
    gpu_seconds: float = 0.0


class _LostWork(StatusModel):
    accounted_gpu_seconds: float = 0.0


class _Status(StatusModel):
    """A part of TrialStatus without the curve, which is most of a trial."""

    rank: int | None = None
    last_step: float | None = None
    checkpoint: _Checkpoint | None = None
    lost_work: _LostWork = _LostWork()
    gpu_seconds: float = 0.0


def parse_trial(payload: Mapping[str, Any]) -> TrialState:
    """Return the state of a HyperParamTrial object."""
    status = _Status.model_validate(payload.get("status") or {})
    checkpoint = status.checkpoint or _Checkpoint(step=0.0)
    work = unsaved_work(
        last_step=status.last_step,
        checkpoint_step=checkpoint.step,
        gpu_seconds=status.gpu_seconds,
        checkpoint_gpu_seconds=checkpoint.gpu_seconds,
        accounted_gpu_seconds=status.lost_work.accounted_gpu_seconds,
    )
    return TrialState(status.rank, work, payload["metadata"].get("uid", ""))
