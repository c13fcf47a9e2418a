"""Notes on a log that yields no value of the objective, for the trial's status and the condition MetricsUnavailable.

The agent's reader of metrics and local mode add every batch of lines, and what a source without lines looked at. The
report appears after AFTER seconds without a value, so that the user learns of a wrong metric or format while the trial
runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium_core.curves.growing_curve import PrintedLine
from podium_core.domain.phrases import count
from podium_core.logs.explain import reason_of, shown
from podium_core.logs.line_reader import MetricsFormat
from podium_core.schema.metrics.rules import LINE_SOURCES
from podium_core.schema.trial import UnreadLog

AFTER = 30.0  # seconds
KEPT = 3  # last lines that a report shows
MAX_REASON = 512
MAX_SCANNED = 64  # lines of a batch in which the metric's name is looked for


def unread_message(metric: str, source: str, log_format: str, unread: UnreadLog) -> str:
    """Return the sentences about a running trial whose metrics have yielded no value of the objective."""
    has_lines = source in LINE_SOURCES
    read = f"{count(unread.lines, 'line')} (format {log_format})" if has_lines else source
    check = ", and check them with `podium validate JOB.yaml --log FILE`" if has_lines else ""
    last = "".join(f"\n  {line}" for line in unread.last)
    message = (
        f"No value of {metric!r} was read from {read}: {unread.reason}. Correct objective.metric or metrics{check}."
    )
    return f"{message} The last lines are:{last}" if last else message


class UnreadLogNotes:
    """Notes on the lines of one pod's log that yielded no value."""

    def __init__(self, metrics: MetricsFormat) -> None:
        self._metrics = metrics
        self._since: float | None = None
        self._lines = 0
        self._reason = self._looked_at = ""
        self._reported_at = 0.0
        self._last: tuple[str, ...] = ()
        self._reported: UnreadLog | None = None

    def add(self, lines: Sequence[PrintedLine], now: float, looked_at: str = "") -> None:
        """Add the lines of a batch; `now`: seconds on a clock that never goes back.

        `looked_at`: why the source yields nothing, where its lines do not tell.
        """
        self._looked_at = looked_at
        if not lines and not looked_at:
            return
        self._since = now if self._since is None else self._since
        self._lines += len(lines)
        texts = [line.text for line in lines[-MAX_SCANNED:]]
        ends = [shown(text) for text in texts[-KEPT:] if text.strip()]
        self._last = (*self._last, *ends)[-KEPT:]
        named = next((text for text in reversed(texts) if self._metrics.metric in text), None)
        if named is not None:
            try:
                self._reason = reason_of(named, self._metrics) or self._reason
            except Exception as error:  # a defect that this line shows must not keep the later lines unread
                self._reason = f"the reader failed on a line with {self._metrics.metric}: {error!r}"

    def report(self, now: float) -> UnreadLog | None:
        """Return what to report; the same report until the number of lines has doubled, to save writes."""
        if self._since is None or now - self._since < AFTER:
            return None
        reason = (self._looked_at or self._reason or f"no line names {self._metrics.metric}")[:MAX_REASON]
        before = self._reported
        changed = before is None or (reason != before.reason and now - self._reported_at >= AFTER)
        if changed or (before is not None and self._lines >= 2 * before.lines > 0):
            self._reported = UnreadLog(lines=self._lines, reason=reason, last=list(self._last))
            self._reported_at = now
        return self._reported
