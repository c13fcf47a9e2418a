"""The agent's part of a trial's status, to and from the API. Pure; used by the trial writer.

Server-side apply makes the agent the owner of exactly these fields, so each patch holds all of them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from podium_agent.observe.logs.tail import Position
from podium_agent.report.lost_work import Loss, Losses, Save
from podium_agent.report.trial_record import Book
from podium_agent.report.usage_ledger import Account, Cost, Hold
from podium_core.curves import additional_metrics as observations
from podium_core.curves.growing_curve import Curve
from podium_core.domain.snapshot import Point
from podium_core.schema.trial import (
    Allocation,
    CheckpointStatus,
    CurvePoint,
    CurveStatus,
    LogCursor,
    LostWork,
    LostWorkRecord,
    SuspensionRecord,
    Suspensions,
    TrialStatus,
)

MINE = {
    "curve",
    "last_step",
    "last_value",
    "additional_metrics",
    "log_cursor",
    "suspensions",
    "checkpoint",
    "lost_work",
    "gpu_seconds",
    "allocations",
    "container_checkpoint",
}


def account_from(status: TrialStatus) -> Account:
    holds = tuple(
        Hold(tuple(hold.gpus), hold.node, hold.start.timestamp(), hold.end.timestamp() if hold.end else None)
        for hold in status.allocations
    )
    settled = sum(hold.seconds(0.0) for hold in holds if hold.end is not None)
    if all(hold.end is not None for hold in holds):
        settled = max(settled, status.gpu_seconds)  # holds that fell off the list still count
    recent = tuple(
        Cost(one.method, one.at.timestamp(), one.suspend_seconds, one.resume_seconds, one.bytes)
        for one in status.suspensions.recent
    )
    past = status.suspensions
    saved, losses = _save_from(status.checkpoint), _losses_from(status.lost_work)
    return Account(holds, settled, past.count, past.suspend_seconds, past.resume_seconds, recent, saved, losses)


def _save_from(saved: CheckpointStatus | None) -> Save | None:
    if saved is None:
        return None
    return Save(saved.step, saved.at.timestamp(), saved.path, saved.node, saved.gpu_seconds, saved.attempt)


def _losses_from(losses: LostWork) -> Losses:
    recent = tuple(
        Loss(one.attempt, one.at.timestamp(), one.step, one.resumed_from, one.steps, one.gpu_seconds)
        for one in losses.recent
    )
    return Losses(losses.count, losses.steps, losses.gpu_seconds, losses.accounted_gpu_seconds, recent)


def reached(status: TrialStatus) -> float | None:
    """Where the attempt came that wrote the status last. Not `last_step`: an earlier one may have been further."""
    cursor = status.log_cursor
    return status.last_step if cursor is None or cursor.step is None else cursor.step


def curve_from(status: TrialStatus, position: Position, begins_at: float | None) -> Curve:
    """`position`: where its log is read on; `begins_at`: the step that a new attempt goes on from, None: no new one."""
    points = tuple(Point(point.step, point.value, point.time) for point in status.curve.points)
    cursor = status.log_cursor
    goes_on = cursor is not None and position != Position()
    return Curve(
        points,
        status.last_step,
        status.last_value,
        lines=cursor.lines if cursor else 0,
        step_missing=goes_on and cursor is not None and cursor.step_pending,
        current_step=(reached(status) or 0.0) if begins_at is None else begins_at,
        awaiting_first_value=begins_at is not None or (cursor is not None and cursor.awaiting_first_value),
        additional_metrics=observations.from_status(status.additional_metrics),
    )


def position_from(status: TrialStatus, pod_uid: str, container: str) -> Position:
    """Where to read on; from the beginning if the cursor belongs to an earlier pod or another container."""
    cursor = status.log_cursor
    if cursor is None or cursor.pod_uid != pod_uid or cursor.container != container:
        return Position()
    return Position(cursor.file, cursor.fingerprint, cursor.offset)


def to_status(book: Book, account: Account, container: str, now: float) -> dict[str, Any]:
    """Everything that the agent owns of the status, as JSON."""
    curve, waiting = book.curve, book.curve.awaited_step
    position = book.position if waiting is None else book.announced_at
    status = TrialStatus(
        curve=CurveStatus(points=[CurvePoint(step=p.step, value=p.value, time=p.time) for p in curve.points]),
        last_step=curve.last_step,
        last_value=curve.last_value,
        additional_metrics=observations.to_status(curve.additional_metrics),
        log_cursor=LogCursor(
            pod_uid=book.pod.uid,
            container=container,
            file=position.file,
            fingerprint=position.fingerprint,
            offset=position.offset,
            lines=curve.lines if waiting is None else waiting.lines,
            step_pending=waiting is not None,
            step=curve.current_step,
            awaiting_first_value=curve.awaiting_first_value,
        ),
        checkpoint=_saved(account.saved),
        lost_work=_losses(account.losses),
        suspensions=Suspensions(
            count=account.count,
            suspend_seconds=round(account.suspend_seconds, 6),
            resume_seconds=round(account.resume_seconds, 6),
            recent=[
                SuspensionRecord(
                    method=cost.method,
                    at=_moment(cost.at),
                    suspend_seconds=round(cost.suspend_seconds, 6),
                    resume_seconds=None if cost.resume_seconds is None else round(cost.resume_seconds, 6),
                    bytes=cost.freed,
                )
                for cost in account.recent
            ],
        ),
        gpu_seconds=round(account.gpu_seconds(now), 3),
        allocations=[
            Allocation(
                gpus=list(hold.gpus),
                node=hold.node,
                start=_moment(hold.start),
                end=None if hold.end is None else _moment(hold.end),
            )
            for hold in account.holds
        ],
        container_checkpoint=book.told,
    )
    # a CRD from before additional metrics, which no upgrade of a chart renews, refuses what it does not know
    mine = MINE if status.additional_metrics else MINE - {"additional_metrics"}
    return status.model_dump(mode="json", by_alias=True, include=mine, exclude_none=True)


def _saved(save: Save | None) -> CheckpointStatus | None:
    if save is None:
        return None
    return CheckpointStatus(
        step=save.step,
        at=_moment(save.at),
        path=save.path,
        node=save.node,
        gpu_seconds=round(save.gpu_seconds, 3),
        attempt=save.attempt,
    )


def _losses(losses: Losses) -> LostWork:
    return LostWork(
        count=losses.count,
        steps=losses.steps,
        gpu_seconds=round(losses.gpu_seconds, 3),
        accounted_gpu_seconds=round(losses.accounted_gpu_seconds, 3),
        recent=[
            LostWorkRecord(
                attempt=loss.attempt,
                at=_moment(loss.at),
                step=loss.step,
                resumed_from=loss.resumed_from,
                steps=loss.steps,
                gpu_seconds=round(loss.gpu_seconds, 3),
            )
            for loss in losses.recent
        ],
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
