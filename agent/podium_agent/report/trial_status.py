"""The agent's part of a trial's status, to and from the API. Pure; used by the trial writer.

With server-side apply the agent owns exactly these fields, so each patch holds all of them.
"""

from __future__ import annotations

from typing import Any

from podium_agent.report.trial_record import TrialRecord
from podium_core.attempts.trial_status import curve_fields, ledger_fields, position_fields, position_of
from podium_core.attempts.usage_ledger import UsageLedger
from podium_core.schema.trial import LogCursor, TrialStatus
from podium_core.sources.batch import Position

AGENT_FIELDS = {
    "curve",
    "last_step",
    "last_value",
    "additional_metrics",
    "log_cursor",
    "unread_log",
    "suspensions",
    "checkpoint",
    "lost_work",
    "gpu_seconds",
    "allocations",
    "container_checkpoint",
}


def position_from(status: TrialStatus, pod_uid: str | None, container: str) -> Position:
    """Return where to continue reading; the beginning if the cursor belongs to another pod or container.

    `pod_uid` None: the position is one in files, which outlive the pod that wrote them.
    """
    cursor = status.log_cursor
    if cursor is None or pod_uid not in (None, cursor.pod_uid) or cursor.container != container:
        return Position()
    return position_of(cursor)


def to_status(trial_record: TrialRecord, ledger: UsageLedger, container: str, now: float) -> dict[str, Any]:
    """Return all fields that the agent owns, as JSON."""
    metrics, curve = trial_record.metrics, trial_record.metrics.curve
    waiting = curve.awaited_step
    position = metrics.position if waiting is None else metrics.pending_position
    status = TrialStatus(
        **curve_fields(curve),
        **ledger_fields(ledger, now),
        log_cursor=LogCursor(
            pod_uid=trial_record.pod.uid,
            container=container,
            **position_fields(position),
            lines=curve.lines if waiting is None else waiting.lines,
            step_pending=waiting is not None,
            step=curve.current_step,
            awaiting_first_value=curve.awaiting_first_value,
            complete=trial_record.life.ended,
        ),
        unread_log=metrics.unread_log,
        container_checkpoint=trial_record.container_checkpoint.published,
    )
    # an old CRD (a chart upgrade does not replace it) rejects unknown fields
    fields = AGENT_FIELDS if status.additional_metrics else AGENT_FIELDS - {"additional_metrics"}
    return status.model_dump(mode="json", by_alias=True, include=fields, exclude_none=True)
