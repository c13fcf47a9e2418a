"""Event files in a folder of a trial, listed and read in bounded amounts.

The folder stays open, so that its files can still be read when the trial's container has ended.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePosixPath

from podium_core.sources.files import Files, RefusedFileError, is_fault

MAX_FILES = 32  # the newest ones count
MAX_ENTRIES = 4096  # names that one listing looks at
MAX_DEPTH = 4
MAX_NAME = 256  # characters of a path below the folder
MARK = "tfevents"


class EventFolder:
    """A folder with event files."""

    def __init__(self, place: Files, path: str) -> None:
        """Open the folder; raise OSError if there is none."""
        self._place = place
        self._path = path
        self._descriptor = place.folder(path)

    def close(self) -> None:
        """Close the folder."""
        os.close(self._descriptor)

    def files(self) -> list[str]:
        """Return the paths of the newest event files below the folder, in the order of their names."""
        try:
            again = self._place.folder(self._path)  # it may have been removed and created again
        except OSError:
            pass  # the container has ended, or the folder is gone
        else:
            os.close(self._descriptor)
            self._descriptor = again
        found = islice(self._walk(self._descriptor, "", 1), MAX_ENTRIES)
        newest = sorted((entry for entry in found if entry is not None), reverse=True)[:MAX_FILES]
        return sorted((name for _, name in newest), key=lambda name: (PurePosixPath(name).name, name))

    def read(self, name: str, offset: int, size: int) -> bytes | None:
        """Return bytes of a file; None if it is shorter than `offset`. Raises OSError or RefusedFileError."""
        file = self._place.file_in(self._descriptor, name)
        try:
            return None if os.fstat(file).st_size < offset else os.pread(file, size, offset)
        finally:
            os.close(file)

    def _walk(self, folder: int, prefix: str, depth: int) -> Iterator[tuple[float, str] | None]:
        """Yield time and path of each event file, and None for each other entry."""
        for name in self._place.names(folder, MAX_ENTRIES):
            path = f"{prefix}{name}"
            if len(path) > MAX_NAME or not path.isprintable():
                yield None
                continue
            entry = -1
            try:
                entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                facts = os.fstat(entry)
                if stat.S_ISREG(facts.st_mode) and MARK in name:
                    yield facts.st_mtime, path
                else:
                    yield None
                    if stat.S_ISDIR(facts.st_mode) and depth < MAX_DEPTH:
                        yield from self._walk(entry, f"{path}/", depth + 1)
            except (OSError, RefusedFileError) as error:
                if isinstance(error, OSError) and is_fault(error):
                    raise  # a file that was left out would be read from its beginning later
                yield None  # removed meanwhile, or not for the trial
            finally:
                if entry >= 0:
                    os.close(entry)
