"""Notes on a log that yields no value of the objective, for the trial's status and the condition MetricsUnavailable.

The agent's trial writer and local mode add every batch of lines. The report appears when lines were read for AFTER
seconds without a value, so that the user learns of a wrong metric or format while the trial runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium_core.curves.growing_curve import LogLine
from podium_core.domain.phrases import count
from podium_core.logs.explain import reason_of, shown
from podium_core.logs.line_reader import MetricsFormat
from podium_core.schema.trial import UnreadLog

AFTER = 30.0  # seconds
KEPT = 3  # last lines that a report shows
MAX_SCANNED = 64  # lines of a batch in which the metric's name is looked for


def unread_message(metric: str, log_format: str, unread: UnreadLog) -> str:
    """Return the sentences about a running trial whose log has yielded no value of the objective."""
    lines = "".join(f"\n  {line}" for line in unread.last)
    return (
        f"No value of {metric!r} was read from {count(unread.lines, 'line')} (format {log_format}): {unread.reason}. "
        "Correct objective.metric or metrics, and check them with `podium validate JOB.yaml --log FILE`. "
        f"The last lines are:{lines}"
    )


class UnreadLogNotes:
    """Notes on the lines of one pod's log that yielded no value."""

    def __init__(self, metrics: MetricsFormat) -> None:
        self._metrics = metrics
        self._since: float | None = None
        self._lines = 0
        self._reason = ""
        self._last: tuple[str, ...] = ()
        self._reported: UnreadLog | None = None

    def add(self, lines: Sequence[LogLine], now: float) -> None:
        """Add the lines of a batch; `now`: seconds on a clock that never goes back."""
        if not lines:
            return
        self._since = now if self._since is None else self._since
        self._lines += len(lines)
        texts = [line.text for line in lines[-MAX_SCANNED:]]
        ends = [shown(text) for text in texts[-KEPT:] if text.strip()]
        self._last = (*self._last, *ends)[-KEPT:]
        named = next((text for text in reversed(texts) if self._metrics.metric in text), None)
        if named is not None:
            self._reason = reason_of(named, self._metrics) or self._reason

    def report(self, now: float) -> UnreadLog | None:
        """Return what to report; the same report until the number of lines has doubled, to save writes."""
        if self._since is None or now - self._since < AFTER:
            return None
        if self._reported is None or self._lines >= 2 * self._reported.lines:
            reason = self._reason or f"no line names {self._metrics.metric}"
            self._reported = UnreadLog(lines=self._lines, reason=reason, last=list(self._last))
        return self._reported
