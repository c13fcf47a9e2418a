"""Output of the trial, as the container runtime logs it."""

from __future__ import annotations

from pathlib import Path

from podium_agent.observe.logs.tail import Tail
from podium_core.logs.line_reader import MetricsFormat, line_reader
from podium_core.sources.batch import Batch, Position


class StdoutSource:
    """Source of the lines that one container prints."""

    def __init__(self, folder: Path, metrics: MetricsFormat, position: Position) -> None:
        """Raise ValueError where metrics.filter is invalid."""
        self.parse = line_reader(metrics)
        self._tail = Tail(folder, position)

    @property
    def lost(self) -> int:
        """Return the number of files deleted before they were read to their end."""
        return self._tail.lost

    @property
    def fault(self) -> Exception | None:
        """Return why the log cannot be read now."""
        return self._tail.trouble

    async def read(self, last: bool) -> Batch:
        """Return the next whole lines; logs are on a disk of the node, so that this never hangs."""
        return self._tail.read()

    def explain(self) -> str:
        """Return nothing: the lines tell why they have no value."""
        return ""

    def stored(self, position: Position) -> None:
        """Ignore the stored position: the log remains."""

    def close(self) -> None:
        """Close the log."""
        self._tail.close()
