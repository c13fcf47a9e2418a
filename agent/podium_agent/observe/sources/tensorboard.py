"""Event files of TensorBoard in a folder of the trial: the tags are the names of the metrics.

Every file below the folder is read from where an earlier pass, agent or attempt stopped. A run that a framework
divides into series (`train`, `validation` of Keras, or `add_scalars`) names its tags `series/tag`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePosixPath

from podium_agent.observe.logs.cri import LogLine
from podium_agent.observe.logs.tail import CHUNK, Batch, Position
from podium_agent.observe.sources.base import STREAM, line_at, no_sooner
from podium_agent.observe.sources.container_files import Root
from podium_agent.observe.sources.container_folder import EventFolder
from podium_agent.observe.sources.file import ContainerPlace
from podium_agent.observe.sources.volume_reads import VolumeReads
from podium_cluster import clock
from podium_core.logs.event_records import Event, RecordAssembler
from podium_core.logs.readings import ready_line, ready_reader
from podium_core.schema.metrics.config import MetricsConfig

LIST_SECONDS = 5.0
MAX_TAGS = 64  # that are remembered to name them
SHOWN_TAGS = 8
SHOWN = 60  # characters of a tag that a message shows
SERIES = frozenset({"train", "training", "validation", "valid", "val", "eval", "evaluation", "test"})


class TensorboardSource:
    """Source of the scalars in one folder of the trial's container."""

    def __init__(self, place: ContainerPlace, metrics: MetricsConfig, position: Position) -> None:
        self.parse = ready_reader(metrics.metric, metrics.additional)
        self.lost = 0
        self._place = place
        self._path = metrics.path
        self._metric = metrics.metric
        self._wanted = frozenset({metrics.metric, *metrics.additional})
        self._position = position
        self._reads = VolumeReads("folder", "the folder", place.seconds, self._let_go)
        # the rest belongs to the thread of the call
        self._root: Root | None = None
        self._folder: EventFolder | None = None
        self._list_due = no_sooner(LIST_SECONDS)
        self._files: list[str] = []
        self._offsets = dict(position.files)
        self._assemblers: dict[str, RecordAssembler] = {}
        self._ready: list[LogLine] = []
        self._tags: set[str] = set()

    @property
    def fault(self) -> OSError | None:
        """Return why the last read failed, where a later one may succeed; None if nothing failed."""
        return self._reads.fault

    async def read(self, last: bool) -> Batch:
        """Return the next events of wanted tags, at most one chunk; none while the volume does not answer."""
        more = await self._reads.more(lambda: self._read(last))
        if more is None:
            return Batch((), self._position, False)
        ready, self._ready = self._ready, []
        offsets = {name: one.safe for name, one in self._assemblers.items()}
        self._position = Position(files=tuple(offsets.items())) if offsets else self._position
        now = clock.now()
        return Batch(tuple(one if one.time else line_at(now, one.text) for one in ready), self._position, more)

    def explain(self) -> str:
        """Return what is in the folder instead of the objective."""
        if self._reads.trouble:
            return f"metrics.path {self._path}: {self._reads.trouble}"
        tags = sorted(self._tags)
        named = ", ".join(tag if len(tag) <= SHOWN else f"{tag[:SHOWN]}..." for tag in tags[:SHOWN_TAGS])
        more = f" and {len(tags) - SHOWN_TAGS} more" if len(tags) > SHOWN_TAGS else ""
        here = f"the tags are {named}{more}" if tags else "no event holds a scalar yet"
        return f"metrics.path {self._path}: no event has the tag {self._metric}; {here}"

    def stored(self, position: Position) -> None:
        """Ignore the stored position: the files remain."""

    def close(self) -> None:
        """Close the folder: an open folder keeps its volume from being detached."""
        self._reads.close()

    def _read(self, last: bool) -> bool:
        if self._folder is None:
            container = self._place.find()
            if container is None:
                return False
            if self._root is None:
                self._root = Root.open(self._place.proc, container)
            self._folder = EventFolder(self._root, self._path)
        if self._list_due() or not self._files or last:
            self._files = self._folder.files()
            self._assemblers = {
                name: self._assemblers.get(name) or RecordAssembler(self._offsets.get(name, 0)) for name in self._files
            }
        self._reads.trouble = "" if self._files else "no event file (*tfevents*) is in it yet"
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
            self._reads.trouble = f"{name}: {assembler.damaged}, so that the rest of the file is not read"
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

    def _let_go(self) -> None:
        if self._folder is not None:
            self._folder.close()
            self._folder = None
        if self._root is not None:
            self._root.close()
            self._root = None


def names_of(folder: str, tag: str) -> tuple[str, ...]:
    """Return the names by which a job may name a tag: alone, and with its folder.

    The tag of a series has only the name with the folder: alone it would mix training with validation.
    """
    if not folder:
        return (tag,)
    series = folder.lower() in SERIES or folder.startswith(f"{tag.replace('/', '_')}_")
    return (f"{folder}/{tag}",) if series else (tag, f"{folder}/{tag}")
