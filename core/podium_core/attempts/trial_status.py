"""What a trial's status says of its usage and its curve, to and from values. Pure.

The agent writes these fields on a cluster, and local mode in its folder. Both continue from them after a restart.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from podium_core.attempts.lost_work import AttemptLostWork, Checkpoint, LostWorkTotals
from podium_core.attempts.usage_ledger import GpuAllocation, SuspensionCost, UsageLedger
from podium_core.curves import additional_metrics
from podium_core.curves.growing_curve import Curve
from podium_core.domain.snapshot import Point
from podium_core.schema.trial import (
    Allocation,
    CheckpointStatus,
    CurvePoint,
    CurveStatus,
    FileCursor,
    LogCursor,
    LostWork,
    LostWorkRecord,
    SuspensionRecord,
    Suspensions,
    TrialStatus,
)
from podium_core.sources.batch import Position


def ledger_from(status: TrialStatus, workers: int = 1) -> UsageLedger:
    """Return the usage ledger that the status of a trial of this many workers describes."""
    allocations = tuple(
        GpuAllocation(
            tuple(allocation.gpus),
            allocation.node,
            allocation.start.timestamp(),
            allocation.end.timestamp() if allocation.end else None,
            workers,
        )
        for allocation in status.allocations
    )
    finished_gpu_seconds = sum(allocation.seconds(0.0) for allocation in allocations if allocation.end is not None)
    if all(allocation.end is not None for allocation in allocations):
        finished_gpu_seconds = max(
            finished_gpu_seconds, status.gpu_seconds
        )  # allocations that left the list still count
    recent = tuple(
        SuspensionCost(one.method, one.at.timestamp(), one.suspend_seconds, one.resume_seconds, one.bytes)
        for one in status.suspensions.recent
    )
    past = status.suspensions
    checkpoint, lost_work = _checkpoint_from(status.checkpoint), _lost_work_from(status.lost_work)
    return UsageLedger(
        allocations,
        finished_gpu_seconds,
        past.count,
        past.suspend_seconds,
        past.resume_seconds,
        recent,
        checkpoint,
        lost_work,
        workers,
    )


def _checkpoint_from(checkpoint: CheckpointStatus | None) -> Checkpoint | None:
    if checkpoint is None:
        return None
    return Checkpoint(
        checkpoint.step,
        checkpoint.at.timestamp(),
        checkpoint.path,
        checkpoint.node,
        checkpoint.gpu_seconds,
        checkpoint.attempt,
    )


def _lost_work_from(lost_work: LostWork) -> LostWorkTotals:
    recent = tuple(
        AttemptLostWork(one.attempt, one.at.timestamp(), one.step, one.resumed_from, one.steps, one.gpu_seconds)
        for one in lost_work.recent
    )
    return LostWorkTotals(
        lost_work.count, lost_work.steps, lost_work.gpu_seconds, lost_work.accounted_gpu_seconds, recent
    )


def reached(status: TrialStatus) -> float | None:
    """Return the last step of the attempt that wrote the status; `last_step` may be of an earlier attempt."""
    cursor = status.log_cursor
    return status.last_step if cursor is None or cursor.step is None else cursor.step


def curve_from(status: TrialStatus, begins_at: float | None, *, continues: bool) -> Curve:
    """Return the curve that a status describes.

    `begins_at`: the step that a new attempt continues from, None: no new attempt. `continues`: the log is read from
    the stored cursor on, not from its beginning.
    """
    points = tuple(Point(point.step, point.value, point.time) for point in status.curve.points)
    cursor = status.log_cursor
    return Curve(
        points,
        status.last_step,
        status.last_value,
        lines=cursor.lines if cursor else 0,
        step_missing=continues and cursor is not None and cursor.step_pending,
        current_step=(reached(status) or 0.0) if begins_at is None else begins_at,
        awaiting_first_value=begins_at is not None or (cursor is not None and cursor.awaiting_first_value),
        additional_metrics=additional_metrics.from_status(status.additional_metrics),
    )


def position_of(cursor: LogCursor | None) -> Position:
    """Return where a source of metrics continues that was read up to this cursor."""
    if cursor is None:
        return Position()
    files = tuple((file.name, file.offset) for file in cursor.files or ())
    return Position(cursor.file, cursor.fingerprint, cursor.offset, files)


def position_fields(position: Position) -> dict[str, Any]:
    """Return the fields of a LogCursor that describe a position."""
    return {
        "file": position.file,
        "fingerprint": position.fingerprint,
        "offset": position.offset,
        "files": [FileCursor(name=name, offset=offset) for name, offset in position.files] or None,
    }


def curve_fields(curve: Curve) -> dict[str, Any]:
    """Return the fields of a TrialStatus that describe the curve."""
    return {
        "curve": CurveStatus(points=[CurvePoint(step=p.step, value=p.value, time=p.time) for p in curve.points]),
        "last_step": curve.last_step,
        "last_value": curve.last_value,
        "additional_metrics": additional_metrics.to_status(curve.additional_metrics),
    }


def ledger_fields(ledger: UsageLedger, now: float) -> dict[str, Any]:
    """Return the fields of a TrialStatus that describe the usage until `now`."""
    return {
        "checkpoint": _checkpoint_status(ledger.checkpoint),
        "lost_work": _lost_work_status(ledger.lost_work),
        "suspensions": Suspensions(
            count=ledger.count,
            suspend_seconds=round(ledger.suspend_seconds, 6),
            resume_seconds=round(ledger.resume_seconds, 6),
            recent=[
                SuspensionRecord(
                    method=cost.method,
                    at=_moment(cost.at),
                    suspend_seconds=round(cost.suspend_seconds, 6),
                    resume_seconds=None if cost.resume_seconds is None else round(cost.resume_seconds, 6),
                    bytes=cost.freed,
                )
                for cost in ledger.recent
            ],
        ),
        "gpu_seconds": round(ledger.gpu_seconds(now), 3),
        "allocations": [
            Allocation(
                gpus=list(allocation.gpus),
                node=allocation.node,
                start=_moment(allocation.start),
                end=None if allocation.end is None else _moment(allocation.end),
            )
            for allocation in ledger.allocations
        ],
    }


def _checkpoint_status(checkpoint: Checkpoint | None) -> CheckpointStatus | None:
    if checkpoint is None:
        return None
    return CheckpointStatus(
        step=checkpoint.step,
        at=_moment(checkpoint.at),
        path=checkpoint.path,
        node=checkpoint.node,
        gpu_seconds=round(checkpoint.gpu_seconds, 3),
        attempt=checkpoint.attempt,
    )


def _lost_work_status(lost_work: LostWorkTotals) -> LostWork:
    return LostWork(
        count=lost_work.count,
        steps=lost_work.steps,
        gpu_seconds=round(lost_work.gpu_seconds, 3),
        accounted_gpu_seconds=round(lost_work.accounted_gpu_seconds, 3),
        recent=[
            LostWorkRecord(
                attempt=attempt_lost_work.attempt,
                at=_moment(attempt_lost_work.at),
                step=attempt_lost_work.step,
                resumed_from=attempt_lost_work.resumed_from,
                steps=attempt_lost_work.steps,
                gpu_seconds=round(attempt_lost_work.gpu_seconds, 3),
            )
            for attempt_lost_work in lost_work.recent
        ],
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
