"""Reader of one trial's metrics: from its source into its record, in passes of bounded time. The writer calls it.

A trial may write anything. A line on which the parser fails is skipped and counted. Whatever error a source raises, or
a parser that fails on every line, the reader closes the source and opens it again later, from the last position of the
record. The trial's status is written all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from pathlib import Path

from podium_agent.metrics import Metrics, error_code
from podium_agent.observe.sources.base import MetricsSource
from podium_agent.observe.sources.prometheus import PrometheusSource
from podium_agent.observe.sources.push import PushQueues, PushSource
from podium_agent.observe.sources.stdout import StdoutSource
from podium_agent.observe.sources.volume_source import ContainerPlace, event_source, file_source
from podium_agent.report.trial_record import TrialRecord
from podium_agent.settings import AgentSettings
from podium_cluster import clock
from podium_cluster.backoff import Backoff
from podium_core.attempts.unread_log import MAX_REASON, UnreadLogNotes
from podium_core.curves.thinning import Grid
from podium_core.logs.readings import ParsedLine
from podium_core.logs.skipping import MAX_CONSECUTIVE, SkippingReader
from podium_core.schema.gpunode import SlotState
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.schema.trial import UnreadLog
from podium_core.sources.batch import Batch, bounded_times

log = logging.getLogger(__name__)
READ_SECONDS = 0.05  # of one pass over a source
LONGEST_PAUSE = 30.0  # of a source that has failed


class MetricsReader:
    """Reader of the metrics of one pod."""

    def __init__(
        self, settings: AgentSettings, metrics: Metrics, trial_record: TrialRecord, queues: PushQueues
    ) -> None:
        self.hurry = False  # the trial's script waits until its values are stored
        self.unreadable = ""  # why the source cannot be read now
        self._settings = settings
        self._queues = queues
        self._metrics = metrics
        self._record = trial_record
        self._source: MetricsSource | None = None
        self._lines = SkippingReader(_nothing, MAX_CONSECUTIVE)
        self._unread: UnreadLogNotes | None = None
        self._grid = Grid(maximize=True)
        self._line_time = 0.0  # of the last line that was read
        self._logs = Path()
        self._retry_at: float | None = None  # when a source that has failed is opened again
        self._backoff = Backoff(longest=LONGEST_PAUSE)

    def prepare(self, logs: Path) -> None:
        """Open the source at the record's position; `logs`: folder of the container's log."""
        self.close()
        settings = self._record.pod.settings
        if settings.metrics is None:
            if settings.metrics_trouble:
                log.error("%s: its metrics are not read: %s", self._record.pod.name, settings.metrics_trouble)
            return
        self._logs = logs
        self._grid = Grid(maximize=settings.metrics.direction == "maximize")
        self._unread = UnreadLogNotes(settings.metrics)
        self._lines = SkippingReader(_nothing, MAX_CONSECUTIVE)
        self._retry_at = 0.0
        self._open_again(settings.metrics)

    def _open_again(self, reading: MetricsConfig) -> None:
        try:
            source = self._open(reading, self._logs)
        except ValueError as error:
            self._retry_at = None
            log.error("%s: its metrics are not read: %s", self._record.pod.name, error)
        else:
            self._source, self._retry_at, self._lines.parse = source, None, source.parse

    def _open(self, reading: MetricsConfig, logs: Path) -> MetricsSource:
        """Return the source of a job's metrics; raises ValueError for settings that it cannot use."""
        trial_record, settings, position = self._record, self._settings, self._record.metrics.position
        if reading.source == "stdout":
            return StdoutSource(logs, reading, position)
        place = ContainerPlace(settings.proc, lambda: trial_record.main, settings.volume_timeout)
        if reading.source == "file":
            return file_source(place, reading, position)
        if reading.source == "tensorboard":
            return event_source(place, reading, position)
        if reading.source == "push":
            return PushSource(self._queues, trial_record.pod.uid, reading, position, self._flush)
        if reading.source == "prometheus":
            return PrometheusSource(self._scrapable_ip, reading)
        raise ValueError(f"metrics.source {reading.source} is not known to this agent; upgrade it")

    async def read(self) -> bool:
        """Read the source; return whether more is left.

        A source with much to read, or one that is expensive to parse, is read in several passes, so that other trials
        are not delayed.
        """
        try:
            return await self._read()
        except Exception as error:  # any error: otherwise the trial's status would not be written any more
            self._pause(error)
            return False

    async def _read(self) -> bool:
        reading = self._record.pod.settings.metrics
        if self._retry_at is not None and reading is not None and time.monotonic() >= self._retry_at:
            self._open_again(reading)
        source = self._source
        if source is None:
            return False
        trial_record, metrics = self._record, self._metrics
        begun = time.monotonic()
        while time.monotonic() - begun < READ_SECONDS:
            lost, skipped = source.lost, self._lines.skipped
            batch = self._with_times(await source.read(trial_record.life.ended))
            before = trial_record.metrics.curve
            trial_record.add_lines(batch, self._lines, self._grid)
            self._note_skipped(skipped)
            after = trial_record.metrics.curve
            self._note_fault(source)
            if batch.lines and self._backoff.failures:
                self._backoff.reset()
                trial_record.set_unread_log(None)
            self._note_unread(source, batch)
            metrics.points.inc(after.accepted - before.accepted)
            metrics.repeated.inc(after.repeated - before.repeated)
            metrics.diverged.inc(after.diverged - before.diverged)
            metrics.lost_logs.inc(source.lost - lost)
            if not batch.more:
                return False
            await asyncio.sleep(0)
        trial_record.urgent.set()
        return True

    def stored(self) -> None:
        """Tell the source that the trial's status holds everything that was read."""
        self.hurry = False
        if self._source is not None:
            self._source.stored(self._record.metrics.position)

    def close(self) -> None:
        """Close the source."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _scrapable_ip(self) -> str | None:
        """Return the pod's address; empty without one, None while the trial cannot answer."""
        trial_record = self._record
        idle = trial_record.main is None or trial_record.life.ended or trial_record.state is SlotState.SUSPENDED
        return None if idle else trial_record.pod.status.ip

    def _pause(self, error: Exception) -> None:
        """Close a source that has failed, until it is opened again from the record's position."""
        pause, name, what = self._backoff.pause(), self._record.pod.name, repr(error)
        self._metrics.failures.labels("metrics", "Crashed").inc()
        log.error("%s: its metrics cannot be read, trying again in %.1f s", name, pause, exc_info=error)
        self._retry_at = time.monotonic() + pause
        self.unreadable = what
        reason = f"the agent's reader failed ({what}) and tries again; see the agent's log"
        lines = self._record.metrics.curve.lines
        self._record.set_unread_log(UnreadLog(lines=lines, reason=reason[:MAX_REASON], last=[]))
        try:
            self.close()
        except Exception:
            log.exception("%s: the source of its metrics cannot be closed", name)

    def _flush(self) -> None:
        self.hurry = True

    def _note_fault(self, source: MetricsSource) -> None:
        """Report a source that cannot be read, once for each reason; every failed read counts."""
        error, before = source.fault, self.unreadable
        self.unreadable = "" if error is None else str(error)
        if error is not None:
            self._metrics.failures.labels("metrics", error_code(error)).inc()
        if error is not None and self.unreadable != before:
            log.error("%s: its metrics cannot be read now, trying again: %s", self._record.pod.name, error)
        elif before and error is None:
            log.info("%s: its metrics can be read again", self._record.pod.name)

    def _note_skipped(self, before: int) -> None:
        """Report skipped lines: each counts, and the log of the agent has a line whenever their number has doubled."""
        skipped = self._lines.skipped
        if skipped > before:
            self._metrics.failures.labels("metrics", "LineSkipped").inc(skipped - before)
        if skipped.bit_length() > before.bit_length():
            log.error("%s: %s", self._record.pod.name, self._lines.explain())

    def _with_times(self, batch: Batch) -> Batch:
        """Return the batch with times that other nodes and the curve so far agree with."""
        now = clock.now()
        points = self._record.metrics.curve.points
        self._line_time = max(self._line_time, points[-1].time if points else 0.0)
        lines = bounded_times(batch.lines, self._line_time, now, time.time() - now)
        if lines:
            self._line_time = lines[-1].time
        return replace(batch, lines=lines)

    def _note_unread(self, source: MetricsSource, batch: Batch) -> None:
        """Report a source that yields no value, until it yields one."""
        if self._unread is None:
            return
        if self._record.metrics.curve.points:
            self._unread = None
            self._record.set_unread_log(None)
            return
        now = time.monotonic()
        self._unread.add(batch.lines, now, source.explain() or self._lines.explain())
        report = self._unread.report(now)
        if report is not None:
            self._record.set_unread_log(report)


def _nothing(_: str) -> list[ParsedLine]:
    """Read the lines of a source that is not open: there are none."""
    return []
