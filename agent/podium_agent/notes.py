"""Notes on the node's disk that the next agent reads: a folder of them for each purpose, a small file each, whole or
not there.

Used by `passages`, `reservations` and `moving.traces`. Not synced: a note has to outlive the agent, and what it tells
of does not outlive the node. A folder that cannot be written stops nobody: that is logged. Blocking.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel

N = TypeVar("N", bound=BaseModel)
log = logging.getLogger(__name__)


class Notes(Generic[N]):
    """All of one kind, each by a name that can be a file's. `of`: what they are notes of, for the log."""

    def __init__(self, folder: Path, kind: type[N], of: str) -> None:
        self._folder = folder
        self._kind = kind
        self._of = of

    def write(self, name: str, note: N, what: str) -> None:
        """In place of the one that is there. `what`: what goes on where it cannot be written, for the log."""
        aside = self._folder / f".{name}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside.write_text(note.model_dump_json())
            aside.rename(self._folder / name)
        except OSError as error:
            log.error("%s without a note of it: %s", what, error)

    def drop(self, name: str) -> None:
        """Nothing where there is none."""
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            log.error("the note of %s %s stays: %s", self._of, name, error)

    def all(self) -> dict[str, N]:
        """By name; what is no note of ours is logged and passed over. Raises OSError if the folder cannot be read."""
        found: dict[str, N] = {}
        for place in self._folder.iterdir() if self._folder.is_dir() else ():
            if place.name.startswith("."):
                continue
            try:
                found[place.name] = self._kind.model_validate_json(place.read_text())
            except (OSError, ValueError) as error:
                log.error("%s is not read as a note of %s: %s", place, self._of, error)
        return found

    def age(self, name: str, now: float) -> float:
        """Seconds since it was written; 0 where there is none. `now`: since 1970."""
        try:
            return now - (self._folder / name).stat().st_mtime
        except OSError:
            return 0.0
