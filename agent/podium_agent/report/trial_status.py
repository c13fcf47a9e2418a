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
    CurvePoint,
    CurveStatus,
    HoldInterval,
    LossRecord,
    ReaderCursor,
    Saved,
    SuspensionRecord,
    Suspensions,
    TrialStatus,
)
from podium_core.schema.trial import (
    Losses as LossesStatus,
)

MINE = {
    "curve",
    "last_step",
    "last_value",
    "observations",
    "reader",
    "suspensions",
    "saved",
    "losses",
    "gpu_seconds",
    "holds",
    "departure",
}


def account_from(status: TrialStatus) -> Account:
    holds = tuple(
        Hold(tuple(hold.gpus), hold.node, hold.start.timestamp(), hold.end.timestamp() if hold.end else None)
        for hold in status.holds
    )
    settled = sum(hold.seconds(0.0) for hold in holds if hold.end is not None)
    if all(hold.end is not None for hold in holds):
        settled = max(settled, status.gpu_seconds)  # holds that fell off the list still count
    recent = tuple(
        Cost(one.method, one.at.timestamp(), one.seconds_out, one.seconds_in, one.bytes)
        for one in status.suspensions.recent
    )
    past = status.suspensions
    saved, losses = _save_from(status.saved), _losses_from(status.losses)
    return Account(holds, settled, past.count, past.seconds_out, past.seconds_in, recent, saved, losses)


def _save_from(saved: Saved | None) -> Save | None:
    if saved is None:
        return None
    return Save(saved.step, saved.at.timestamp(), saved.path, saved.node, saved.gpu_seconds, saved.attempt)


def _losses_from(losses: LossesStatus) -> Losses:
    recent = tuple(
        Loss(one.attempt, one.at.timestamp(), one.step, one.resumed_from, one.steps, one.gpu_seconds)
        for one in losses.recent
    )
    return Losses(losses.count, losses.steps, losses.gpu_seconds, losses.counted_to, recent)


def reached(status: TrialStatus) -> float | None:
    """Where the attempt came that wrote the status last. Not `last_step`: an earlier one may have been further."""
    cursor = status.reader
    return status.last_step if cursor is None or cursor.step is None else cursor.step


def curve_from(status: TrialStatus, position: Position, begins_at: float | None) -> Curve:
    """`position`: where its log is read on; `begins_at`: the step that a new attempt goes on from, None: no new one."""
    points = tuple(Point(point.step, point.value, point.time) for point in status.curve.points)
    cursor = status.reader
    goes_on = cursor is not None and position != Position()
    return Curve(
        points,
        status.last_step,
        status.last_value,
        lines=cursor.lines if cursor else 0,
        again=goes_on and cursor is not None and cursor.announced,
        at=(reached(status) or 0.0) if begins_at is None else begins_at,
        first=begins_at is not None or (cursor is not None and cursor.first),
        observed=observations.from_status(status.observations),
    )


def position_from(status: TrialStatus, pod_uid: str, container: str) -> Position:
    """Where to read on; from the beginning if the cursor belongs to an earlier pod or another container."""
    cursor = status.reader
    if cursor is None or cursor.pod_uid != pod_uid or cursor.container != container:
        return Position()
    return Position(cursor.file, cursor.fingerprint, cursor.offset)


def to_status(book: Book, account: Account, container: str, now: float) -> dict[str, Any]:
    """Everything that the agent owns of the status, as JSON."""
    curve, waiting = book.curve, book.curve.waiting
    position = book.position if waiting is None else book.announced_at
    status = TrialStatus(
        curve=CurveStatus(points=[CurvePoint(step=p.step, value=p.value, time=p.time) for p in curve.points]),
        last_step=curve.last_step,
        last_value=curve.last_value,
        observations=observations.to_status(curve.observed),
        reader=ReaderCursor(
            pod_uid=book.pod.uid,
            container=container,
            file=position.file,
            fingerprint=position.fingerprint,
            offset=position.offset,
            lines=curve.lines if waiting is None else waiting.lines,
            announced=waiting is not None,
            step=curve.at,
            first=curve.first,
        ),
        saved=_saved(account.saved),
        losses=_losses(account.losses),
        suspensions=Suspensions(
            count=account.count,
            seconds_out=round(account.seconds_out, 6),
            seconds_in=round(account.seconds_in, 6),
            recent=[
                SuspensionRecord(
                    method=cost.method,
                    at=_moment(cost.at),
                    seconds_out=round(cost.seconds_out, 6),
                    seconds_in=None if cost.seconds_in is None else round(cost.seconds_in, 6),
                    bytes=cost.freed,
                )
                for cost in account.recent
            ],
        ),
        gpu_seconds=round(account.gpu_seconds(now), 3),
        holds=[
            HoldInterval(
                gpus=list(hold.gpus),
                node=hold.node,
                start=_moment(hold.start),
                end=None if hold.end is None else _moment(hold.end),
            )
            for hold in account.holds
        ],
        departure=book.told,
    )
    # a CRD from before additional metrics, which no upgrade of a chart renews, refuses what it does not know
    mine = MINE if status.observations else MINE - {"observations"}
    return status.model_dump(mode="json", by_alias=True, include=mine, exclude_none=True)


def _saved(save: Save | None) -> Saved | None:
    if save is None:
        return None
    return Saved(
        step=save.step,
        at=_moment(save.at),
        path=save.path,
        node=save.node,
        gpu_seconds=round(save.gpu_seconds, 3),
        attempt=save.attempt,
    )


def _losses(losses: Losses) -> LossesStatus:
    return LossesStatus(
        count=losses.count,
        steps=losses.steps,
        gpu_seconds=round(losses.gpu_seconds, 3),
        counted_to=round(losses.counted_to, 3),
        recent=[
            LossRecord(
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
