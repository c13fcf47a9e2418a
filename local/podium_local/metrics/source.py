"""What every source of a trial's metrics offers, and which one a job names. The trial reads nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from podium_core.logs.line_reader import line_reader
from podium_core.logs.readings import Reader
from podium_core.schema.job import JobSpec
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import Batch, Position
from podium_core.sources.due import due_every
from podium_core.sources.event_reader import EventReader
from podium_core.sources.file_reader import FileReader
from podium_local.clock import SteadyClock
from podium_local.metrics.file_source import FileSource, LocalFiles
from podium_local.metrics.page_source import PageSource
from podium_local.processes.log_follower import LogFollower

MAX_SKIPPED = 1 << 16  # reads of what a parent wrote
LIST_SECONDS = 1.0  # between two listings of a folder with event files; here that costs little


class Source(Protocol):
    """Source of the metrics of one attempt."""

    @property
    def parse(self) -> Reader:
        """Return the reader of the lines of this source."""
        ...

    @property
    def position(self) -> Position:
        """Return where a later source continues after what was read."""
        ...

    def read(self, now: float, *, complete: bool) -> Batch:
        """Return the next lines; `complete`: the attempt has ended, so what is there now is all there will be."""
        ...

    def explain(self) -> str:
        """Return what was looked at and why it yields no value; empty if the lines themselves tell."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


def open_source(
    metrics: MetricsConfig, log: Path, position: Position, clock: SteadyClock, answering: Callable[[], int | None]
) -> Source:
    """Return the source of one attempt; `metrics` has the path and port of this machine.

    `log`: the log of the attempt. `position`: where the attempt before was read to. `answering`: the pid of the
    attempt's process; None while it cannot answer.
    """
    if metrics.source == "file":
        return FileSource(FileReader(metrics, position, LocalFiles), "file", metrics.path, clock)
    if metrics.source == "tensorboard":
        events = EventReader(metrics, position, LocalFiles, due_every(LIST_SECONDS, time.monotonic))
        return FileSource(events, "folder", metrics.path, clock)
    if metrics.source == "prometheus":
        return PageSource(metrics, answering)
    return LogFollower(log, position.offset if position.file == log.name else 0, line_reader(metrics))


def skip_present(source: Source, now: float) -> None:
    """Skip what is there before the first attempt.

    The copy of a parent's checkpoint may hold the parent's values.
    """
    for _ in range(MAX_SKIPPED):
        batch = source.read(now, complete=False)
        for line in batch.lines:
            source.parse(line.text)  # the first line of a table names its columns
        if not batch.more:
            return


def missing_text(spec: JobSpec, metrics: MetricsConfig, looked_at: str) -> str:
    """Return why a trial that has ended well has no value of the objective.

    `looked_at`: what its source explained.
    """
    field = "objectives" if spec.objectives else "objective.metric"
    if metrics.source == "stdout":
        text = f"The trial ended and never printed {metrics.metric!r} (format {metrics.format})"
        return f"{text}: compare {field} and metrics with its log."
    explained = f" ({looked_at})" if looked_at else ""
    text = f"The trial ended, and no value of {metrics.metric!r} was read from {metrics.source}{explained}"
    return f"{text}: compare {field} and metrics with what the script writes."
