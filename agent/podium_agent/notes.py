"""Small files on the node's disk that the next agent reads, one folder for each purpose.

`admissions`, `exclusive_allocations` and `migration.artifacts` use them. A write replaces the whole file. The files
are not synced: they must outlive the agent, and a reboot of the node ends what they describe. A folder that cannot be
written is logged and stops nothing. All calls block.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel

N = TypeVar("N", bound=BaseModel)
log = logging.getLogger(__name__)


class Notes(Generic[N]):
    """Notes of one kind in one folder, by a name that is valid as a file name.

    `of` names their subject in log messages.
    """

    def __init__(self, folder: Path, kind: type[N], of: str) -> None:
        self._folder = folder
        self._kind = kind
        self._of = of

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
            log.error("%s without a note: %s", what, error)

    def drop(self, name: str) -> None:
        """Remove a note if it exists."""
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            log.error("the note of %s %s could not be removed: %s", self._of, name, error)

    def all(self) -> dict[str, N]:
        """Return the notes by name; an unreadable file is logged and skipped.

        Raises OSError if the folder cannot be read.
        """
        notes: dict[str, N] = {}
        for place in self._folder.iterdir() if self._folder.is_dir() else ():
            if place.name.startswith("."):
                continue
            try:
                notes[place.name] = self._kind.model_validate_json(place.read_text())
            except (OSError, ValueError) as error:
                log.error("%s is not a readable note of %s: %s", place, self._of, error)
        return notes

    def age(self, name: str, now: float) -> float:
        """Return the seconds since the note was written, or 0 without a note; `now` is in seconds since 1970."""
        try:
            return now - (self._folder / name).stat().st_mtime
        except OSError:
            return 0.0
