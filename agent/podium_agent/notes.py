"""Small files on the node's disk that the next agent reads, one folder for each purpose.

`admissions`, `exclusive_allocations` and `migration.artifacts` use them. A write replaces the whole file. The files
are not synced: they must outlive the agent, and a reboot of the node ends what they describe. A power failure may
leave a file without its content, which is removed. A folder that cannot be written is logged and stops nothing. All
calls block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel

N = TypeVar("N", bound=BaseModel)
Failed = Callable[[OSError], None]
log = logging.getLogger(__name__)


def ignore(error: OSError) -> None:
    """Count nothing: a failure is only logged."""


class Notes(Generic[N]):
    """Notes of one kind in one folder, by a name that is valid as a file name.

    `of` names their subject in log messages. `failed` is called for each write that fails.
    """

    def __init__(self, folder: Path, kind: type[N], of: str, failed: Failed = ignore) -> None:
        self._folder = folder
        self._kind = kind
        self._of = of
        self._failed = failed
        self._unwritten: dict[str, str] = {}  # why the last write of a note failed, to log each reason once

    def write(self, name: str, note: N, what: str) -> None:
        """Write a note, or replace the one with this name.

        `what`: what happens without the note if it cannot be written, for the log.
        """
        aside = self._folder / f".{name}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside.write_text(note.model_dump_json())
            aside.rename(self._folder / name)
        except OSError as error:
            self._failed(error)
            with suppress(OSError):
                aside.unlink(missing_ok=True)  # an incomplete file: a full disk needs the space
            if self._unwritten.get(name) != str(error):
                self._unwritten[name] = str(error)
                log.error("%s without a note: %s", what, error)
        else:
            self._unwritten.pop(name, None)

    def drop(self, name: str) -> None:
        """Remove a note if it exists."""
        self._unwritten.pop(name, None)
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            log.error("the note of %s %s could not be removed: %s", self._of, name, error)

    def names(self) -> set[str]:
        """Return the names of the notes that exist, also of unreadable ones.

        Raises OSError if the folder cannot be read.
        """
        there = self._folder.iterdir() if self._folder.is_dir() else ()
        return {place.name for place in there if not place.name.startswith(".")}

    def all(self) -> dict[str, N]:
        """Return the notes by name; an unreadable file is logged and skipped, one without content is removed.

        Raises OSError if the folder cannot be read.
        """
        notes: dict[str, N] = {}
        for name in sorted(self.names()):
            try:
                content = (self._folder / name).read_text()
                if content.strip("\0"):
                    notes[name] = self._kind.model_validate_json(content)
                    continue
            except (OSError, ValueError) as error:
                log.error("%s is not a readable note of %s: %s", self._folder / name, self._of, error)
                continue
            log.warning("the note of %s %s is removed: it was never on the disk, since the node failed", self._of, name)
            self.drop(name)
        return notes
