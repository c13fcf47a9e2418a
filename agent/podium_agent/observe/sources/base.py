"""What every source of metrics offers: batches of lines, each with the position from which a later agent continues.

A read is bounded in time, bytes and lines. The reader of metrics (`report.metrics_reader`) knows only this interface.
"""

from __future__ import annotations

import time
from typing import Protocol

from podium_cluster import clock
from podium_core.logs.readings import Reader
from podium_core.sources.batch import STREAM, Batch, LogLine, Position


class MetricsSource(Protocol):
    """One source of one pod's metrics."""

    @property
    def parse(self) -> Reader:
        """Return the reader of the lines of this source."""
        ...

    @property
    def lost(self) -> int:
        """Return the number of files, or of values, that were gone before they were read."""
        ...

    @property
    def fault(self) -> Exception | None:
        """Return why the last read failed, where a later one may succeed; None if nothing failed."""
        ...

    async def read(self, last: bool) -> Batch:
        """Return the next lines; `last`: the trial has ended, so what is there now is all there will be."""
        ...

    def explain(self) -> str:
        """Return what was looked at and why it yields no value; empty if the lines themselves tell."""
        ...

    def stored(self, position: Position) -> None:
        """Note that the trial's status holds everything up to this position."""
        ...

    def close(self) -> None:
        """Release files, connections and tasks."""
        ...


def wall_time(seconds: float) -> float:
    """Return a time of the API server by the wall clock of the node, as a container's log has it."""
    return seconds + time.time() - clock.now()


def line_at(seconds: float, text: str, start: int = 0, end: int = 0) -> LogLine:
    """Return a line with the API server's time; the lines of a container's log have the node's time."""
    return LogLine(wall_time(seconds), STREAM, text, start, end)
