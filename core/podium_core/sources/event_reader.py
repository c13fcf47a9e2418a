"""Event files of TensorBoard in a folder of the trial: the tags are the names of the metrics.

Every file below the folder is read from where an earlier pass, agent or attempt stopped. A run that a framework
divides into series (`train`, `validation` of Keras, or `add_scalars`) names its tags `series/tag`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from podium_core.logs.event_records import Event, RecordAssembler
from podium_core.logs.readings import Reader, ready_line, ready_reader
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import CHUNK, STREAM, LogLine, Position
from podium_core.sources.event_folder import EventFolder
from podium_core.sources.files import Files

LIST_SECONDS = 5.0  # between two listings of the folder
MAX_TAGS = 64  # that are remembered to name them
SHOWN_TAGS = 8
SHOWN = 60  # characters of a tag that a message shows
SERIES = frozenset({"train", "training", "validation", "valid", "val", "eval", "evaluation", "test"})


class EventReader:
    """Reader of the scalars in one folder. It may be called from one thread at a time.

    `trouble`: why the last read yielded nothing; None before a read of the folder. `position`: where a later reader
    continues after the lines that were taken.
    """

    def __init__(
        self,
        metrics: MetricsConfig,
        position: Position,
        place: Callable[[], Files | None],
        list_due: Callable[[], bool],
    ) -> None:
        """`place` returns where the folder is, None until that exists; `list_due`: whether to list it again."""
        self.parse: Reader = ready_reader(metrics.metric, metrics.additional)
        self.position = position
        self.trouble: str | None = None
        self._find = place
        self._list_due = list_due
        self._path = metrics.path
        self._metric = metrics.metric
        self._wanted = frozenset({metrics.metric, *metrics.additional})
        self._place: Files | None = None
        self._folder: EventFolder | None = None
        self._files: list[str] = []
        self._offsets = dict(position.files)
        self._assemblers: dict[str, RecordAssembler] = {}
        self._ready: list[LogLine] = []
        self._tags: set[str] = set()

    def take(self, time: float) -> tuple[LogLine, ...]:
        """Return what the last reads yielded, and set the position after it; `time`: of events that have none."""
        ready, self._ready = self._ready, []
        offsets = {name: one.safe for name, one in self._assemblers.items()}
        self.position = Position(files=tuple(offsets.items())) if offsets else self.position
        return tuple(one if one.time else replace(one, time=time) for one in ready)

    def explain(self) -> str:
        """Return what is in the folder instead of the objective."""
        tags = sorted(self._tags)
        named = ", ".join(tag if len(tag) <= SHOWN else f"{tag[:SHOWN]}..." for tag in tags[:SHOWN_TAGS])
        more = f" and {len(tags) - SHOWN_TAGS} more" if len(tags) > SHOWN_TAGS else ""
        here = f"the tags are {named}{more}" if tags else "no event holds a scalar yet"
        return f"metrics.path {self._path}: no event has the tag {self._metric}; {here}"

    def close(self) -> None:
        """Close the folder: an open folder keeps its volume from being detached."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None
        if self._place is not None:
            self._place.close()
            self._place = None

    def read(self, last: bool) -> bool:
        """Read at most one chunk and return whether more is there; `last`: the files do not grow any more.

        Raises OSError, or ValueError for a file that is refused.
        """
        if self._folder is None:
            if self._place is None:
                self._place = self._find()
            if self._place is None:
                return False
            self._folder = EventFolder(self._place, self._path)
        if self._list_due() or not self._files or last:
            self._files = self._folder.files()
            self._assemblers = {
                name: self._assemblers.get(name) or RecordAssembler(self._offsets.get(name, 0)) for name in self._files
            }
        self.trouble = "" if self._files else "no event file (*tfevents*) is in it yet"
        folder = self._folder
        return any(self._read_file(folder, name) for name in self._files)  # one chunk at a time

    def _read_file(self, folder: EventFolder, name: str) -> bool:
        """Read one chunk of a file; return whether more is there."""
        assembler = self._assemblers[name]
        try:
            data = folder.read(name, assembler.wanted, CHUNK)
        except FileNotFoundError:
            return False
        if data is None:  # a skipped record is not complete yet, or the file was written again
            if not assembler.skipping:
                self._assemblers[name] = RecordAssembler()
            return False
        for event in assembler.feed(data):
            self._ready += self._lines(name, event)
        if assembler.damaged:
            # a network volume may show a record before its bytes: the next pass reads it again
            self._assemblers[name] = RecordAssembler(assembler.safe)
            self.trouble = f"{name}: {assembler.damaged}, so that the rest of the file is not read"
            return False
        return len(data) == CHUNK

    def _lines(self, name: str, event: Event) -> Iterator[LogLine]:
        for tag, value in event.values:
            names = names_of(PurePosixPath(name).parent.name, tag)
            if len(self._tags) < MAX_TAGS:
                self._tags.add(names[0])
            wanted = {one: value for one in names if one in self._wanted}
            if wanted:
                at = event.time if math.isfinite(event.time) and event.time > 0 else 0.0
                yield LogLine(at, STREAM, ready_line(float(event.step), wanted), 0, 0)


def names_of(folder: str, tag: str) -> tuple[str, ...]:
    """Return the names by which a job may name a tag: alone, and with its folder.

    The tag of a series has only the name with the folder: alone it would mix training with validation.
    """
    if not folder:
        return (tag,)
    series = folder.lower() in SERIES or folder.startswith(f"{tag.replace('/', '_')}_")
    return (f"{folder}/{tag}",) if series else (tag, f"{folder}/{tag}")
