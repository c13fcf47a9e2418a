"""Files of the trial: one with metrics, line by line, or a folder with TensorBoard's event files.

They are opened inside the container (`container_files`) and read by the readers of the core. Each read has a thread of
its own, because a volume of the container may hang.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from podium_agent.observe.cgroups import Container
from podium_agent.observe.sources.base import wall_time
from podium_agent.observe.sources.container_files import Root
from podium_agent.observe.sources.hanging import BusyError, HangingCalls
from podium_cluster import clock
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import Batch, Position
from podium_core.sources.due import due_every
from podium_core.sources.event_reader import LIST_SECONDS, EventReader
from podium_core.sources.file_reader import FileReader
from podium_core.sources.files import is_fault


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """Where a container's files are, and the seconds within which its volumes must answer.

    `find` returns the container once its processes were seen.
    """

    proc: Path
    find: Callable[[], Container | None]
    seconds: float

    def open(self) -> Root | None:
        """Return the root of the container; None before its processes were seen. Raises OSError."""
        container = self.find()
        return None if container is None else Root.open(self.proc, container)


class VolumeSource:
    """Source of what one file or folder in the trial's container holds."""

    def __init__(self, reader: FileReader | EventReader, what: str, metrics: MetricsConfig, seconds: float) -> None:
        """`what`: the place in messages, "file" or "folder"."""
        self.parse = reader.parse
        self.lost = 0
        self.fault: OSError | None = None
        self._reader = reader  # of the thread of the call
        self._what = what
        self._path = metrics.path
        self._seconds = seconds
        self._trouble = "its container has not started yet"
        self._position = reader.position
        self._calls: HangingCalls[bool] = HangingCalls("metrics", reader.close)

    async def read(self, last: bool) -> Batch:
        """Return the next lines, at most one chunk; none while the volume does not answer."""
        try:
            more = await self._calls.call(lambda: self._pass(last), self._seconds)
        except BusyError:
            return Batch((), self._position, False)
        except TimeoutError:
            named = f"the {self._what} {self._path}"
            self._trouble = f"VolumeUnresponsive: {named} was not read within {self._seconds:g} s"
            return Batch((), self._position, False)
        except OSError as error:  # no thread could start
            self._note(error)
            return Batch((), self._position, False)
        lines = self._reader.take(wall_time(clock.now()))
        self._position = self._reader.position
        return Batch(lines, self._position, more)

    def explain(self) -> str:
        """Return why the place yields nothing, or what it holds instead of the objective."""
        return f"metrics.path {self._path}: {self._trouble}" if self._trouble else self._reader.explain()

    def stored(self, position: Position) -> None:
        """Ignore the stored position: the files remain."""

    def close(self) -> None:
        """Close what is open: an open file keeps its volume from being detached."""
        self._calls.close()

    def _pass(self, last: bool) -> bool:
        self.fault = None
        try:
            more = self._reader.read(last)
        except FileNotFoundError:
            self._trouble = f"the {self._what} does not exist in the container yet"
        except ProcessLookupError:
            self._trouble = f"the container has ended, and the {self._what} was not there before"
        except OSError as error:
            self._note(error)
        except ValueError as error:
            self._trouble = f"{error}"
        else:
            if self._reader.trouble is not None:
                self._trouble = self._reader.trouble
            return more
        return False

    def _note(self, error: OSError) -> None:
        self._trouble = f"it cannot be read: {error.strerror}"
        self.fault = error if is_fault(error) else None


def file_source(place: ContainerPlace, metrics: MetricsConfig, position: Position) -> VolumeSource:
    """Return the source of the lines of one file. Raises ValueError where metrics.filter is invalid."""
    return VolumeSource(FileReader(metrics, position, place.open), "file", metrics, place.seconds)


def event_source(place: ContainerPlace, metrics: MetricsConfig, position: Position) -> VolumeSource:
    """Return the source of the scalars in one folder with event files."""
    reader = EventReader(metrics, position, place.open, due_every(LIST_SECONDS, time.monotonic))
    return VolumeSource(reader, "folder", metrics, place.seconds)
