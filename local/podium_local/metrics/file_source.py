"""Files of a trial on this machine: one with metrics, line by line, or a folder with TensorBoard's event files."""

from __future__ import annotations

import os
import stat

from podium_core.sources.batch import Batch, Position, bounded_times
from podium_core.sources.event_reader import EventReader
from podium_core.sources.file_reader import FileReader
from podium_core.sources.files import REOPEN, RefusedFileError, names_in
from podium_local.clock import SteadyClock


class LocalFiles:
    """Files of this machine, as this user may read them.

    Only regular files are opened: a pipe would block.
    """

    def folder(self, path: str) -> int:
        """Return a descriptor of a folder; raises OSError."""
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def file(self, path: str) -> int:
        """Return a descriptor of a file for reading; raises OSError or RefusedFileError."""
        return _readable(os.open(path, os.O_PATH | os.O_CLOEXEC), path)

    def file_in(self, folder: int, name: str) -> int:
        """Return the same for a file below an open folder."""
        return _readable(os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=folder), name)

    def names(self, folder: int, most: int) -> list[str]:
        """Return at most `most` names in an open folder; raises OSError."""
        return names_in(folder, most)

    def close(self) -> None:
        """Do nothing: nothing is kept open."""


class FileSource:
    """Source of what one file or folder holds. `what`: the place in messages, "file" or "folder"."""

    def __init__(self, reader: FileReader | EventReader, what: str, path: str, clock: SteadyClock) -> None:
        self.parse = reader.parse
        self._reader = reader
        self._what = what
        self._path = path
        self._clock = clock
        self._time = 0.0  # of the last line
        self._trouble = ""

    @property
    def position(self) -> Position:
        """Return where a later source continues after what was read."""
        return self._reader.position

    def read(self, now: float, *, complete: bool) -> Batch:
        """Return the next lines, at most one chunk."""
        more = self._pass(complete)
        ahead = self._clock.ahead()
        lines = bounded_times(self._reader.take(now + ahead), self._time, now, ahead)
        if lines:
            self._time = lines[-1].time
        return Batch(lines, self.position, more)

    def explain(self) -> str:
        """Return why the place yields nothing, or what it holds instead of the objective."""
        return f"metrics.path {self._path}: {self._trouble}" if self._trouble else self._reader.explain()

    def close(self) -> None:
        """Close what is open."""
        self._reader.close()

    def _pass(self, complete: bool) -> bool:
        try:
            more = self._reader.read(complete)
        except FileNotFoundError:
            self._trouble = f"the {self._what} does not exist"
        except OSError as error:
            self._trouble = f"it cannot be read: {error.strerror}"
        except ValueError as error:
            self._trouble = f"{error}"
        else:
            self._trouble = self._reader.trouble or ""
            return more
        return False


def _readable(name: int, path: str) -> int:
    try:
        if not stat.S_ISREG(os.fstat(name).st_mode):
            raise RefusedFileError(f"{path} is not a regular file")
        return os.open(f"/proc/self/fd/{name}", REOPEN)
    finally:
        os.close(name)
