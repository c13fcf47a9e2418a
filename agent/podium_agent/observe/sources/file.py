"""A file of the trial with metrics, line by line, while the script writes it.

The file is opened inside the container (`container_files`). It and its folder stay open, so that the last lines can be
read when the container has ended. A file that was replaced is read to its end before the new one. A file that was
written again in place is read from its beginning. A later attempt that appends to the same file continues at the
stored offset. It is the same file if its first line, and the last bytes that were read, are those of the fingerprint.
The first line alone does not tell: it is the header of every CSV file that the script writes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from podium_agent.observe.cgroups import Container
from podium_agent.observe.logs.cri import LogLine
from podium_agent.observe.logs.tail import CHUNK, Batch, Position
from podium_agent.observe.sources.base import line_at
from podium_agent.observe.sources.container_files import Root
from podium_agent.observe.sources.lines import SEEN, LineAssembler, RawLine
from podium_agent.observe.sources.volume_reads import VolumeReads
from podium_cluster import clock
from podium_core.logs.line_reader import line_reader
from podium_core.schema.metrics.config import MetricsConfig

FIRST_BYTES = 256  # by whose hash a file is recognised
HEADER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """Where a container's files are, and the seconds within which its volumes must answer.

    `find` returns the container once its processes were seen.
    """

    proc: Path
    find: Callable[[], Container | None]
    seconds: float


class FileSource:
    """Source of the lines of one file in the trial's container."""

    def __init__(self, place: ContainerPlace, metrics: MetricsConfig, position: Position) -> None:
        """Raise ValueError where metrics.filter is invalid."""
        self.parse = line_reader(metrics)
        self.lost = 0
        self._place = place
        self._path = metrics.path
        self._csv = metrics.format == "csv"
        self._position = position
        self._reads = VolumeReads("file", metrics.path, place.seconds, self._let_go)
        # the rest belongs to the thread of the call
        self._root: Root | None = None
        self._folder = self._file = -1
        self._lines = LineAssembler()
        self._ready: list[RawLine] = []
        self._reached = position
        self._bytes = 0

    @property
    def fault(self) -> OSError | None:
        """Return why the last read failed, where a later one may succeed; None if nothing failed."""
        return self._reads.fault

    async def read(self, last: bool) -> Batch:
        """Return the next lines, at most one chunk; none while the volume does not answer."""
        more = await self._reads.more(lambda: self._read(last))
        if more is None:
            return Batch((), self._position, False)
        ready, self._ready = self._ready, []
        self._position = self._reached
        now = clock.now()
        return Batch(tuple(_line(now, raw) for raw in ready), self._position, more)

    def explain(self) -> str:
        """Return why the file yields nothing; empty once it has yielded lines."""
        return f"metrics.path {self._path}: {self._reads.trouble}" if self._reads.trouble else ""

    def stored(self, position: Position) -> None:
        """Ignore the stored position: the file remains."""

    def close(self) -> None:
        """Close the file: an open file keeps its volume from being detached."""
        self._reads.close()

    def _read(self, last: bool) -> bool:
        if self._file < 0 and not self._enter():
            return False
        data = self._unread()
        replaced = data == b"" and self._was_replaced()
        if replaced:
            data = self._unread()  # what the script wrote before it replaced the file
        if data is None:
            self._begin(0)  # truncated or written again
            return True
        if data:
            full = len(data) == CHUNK - len(self._lines.seen)
            self._take(self._lines.feed(data))
            return replaced or full
        if replaced:
            self._take(self._lines.end())
            self._leave()
            return True
        if last:
            self._take(self._lines.end())
        self._reads.trouble = "" if self._bytes else "the file is empty"
        return False

    def _unread(self) -> bytes | None:
        """Return the next bytes of the open file; None if the bytes before them are not those that were read."""
        seen = self._lines.seen
        data = os.pread(self._file, CHUNK, self._lines.read - len(seen))
        return data[len(seen) :] if data.startswith(seen) else None

    def _take(self, lines: list[RawLine]) -> None:
        self._ready += lines
        self._bytes = self._lines.read
        self._reads.trouble = ""
        first = self._reached.fingerprint.partition("-")[0] or _fingerprint(self._file)
        fingerprint = f"{first}-{self._lines.read}-{_hash(self._lines.seen)}" if first else ""
        self._reached = Position(PurePosixPath(self._path).name, fingerprint, self._lines.safe if first else 0)

    def _enter(self) -> bool:
        """Open the file, at the position of an earlier agent or attempt if it is the same file."""
        if self._root is None:
            container = self._place.find()
            if container is None:
                return False
            self._root = Root.open(self._place.proc, container)
        root, path = self._root, PurePosixPath(self._path)
        if self._folder < 0:
            self._folder = root.folder(str(path.parent))
        try:
            self._file = root.file(self._path)
        except FileNotFoundError as missing:
            try:  # if the container has ended, its root is empty, but the folder is still open
                self._file = root.file_in(self._folder, path.name)
            except OSError:
                raise missing from None
        try:
            self._begin(self._reached.offset if _is_file_of(self._reached, self._file) else 0)
        except OSError:  # the next pass must find the position again
            os.close(self._file)
            self._file = -1
            raise
        return True

    def _begin(self, offset: int) -> None:
        self._lines = LineAssembler(offset, _before(self._file, offset))
        if offset == 0:
            self._reached = Position()
        elif self._csv:
            self.parse(os.pread(self._file, HEADER_BYTES, 0).split(b"\n")[0].decode(errors="replace"))

    def _was_replaced(self) -> bool:
        """Return whether another file has the path now."""
        if self._root is None:
            return False
        try:
            other = self._root.file(self._path)
        except (OSError, ValueError):
            return False
        try:
            return not os.path.sameopenfile(other, self._file)
        finally:
            os.close(other)

    def _leave(self) -> None:
        os.close(self._file)
        self._file, self._reached = -1, Position()

    def _let_go(self) -> None:
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._folder = -1
        if self._root is not None:
            self._root.close()
            self._root = None


def _fingerprint(descriptor: int) -> str:
    """Return the hash of the file's first line, or of its first bytes; empty if they are not complete yet."""
    first = os.pread(descriptor, FIRST_BYTES, 0)
    line, end, _ = first.partition(b"\n")
    return _hash(line) if end or len(first) == FIRST_BYTES else ""


def _is_file_of(position: Position, descriptor: int) -> bool:
    """Return whether an open file is the one that was read up to this position.

    An agent of an earlier version stored only the hash of the first line.
    """
    (first, _, last), size = position.fingerprint.partition("-"), os.fstat(descriptor).st_size
    if not first or first != _fingerprint(descriptor) or position.offset > size:
        return False
    read, _, seen = last.partition("-")
    if not last:
        return True
    valid = read.isdecimal() and len(read) < 20 and int(read) <= size
    return valid and seen == _hash(_before(descriptor, int(read)))


def _before(descriptor: int, offset: int) -> bytes:
    """Return the last bytes before an offset."""
    size = min(SEEN, offset)
    return os.pread(descriptor, size, offset - size)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _line(now: float, raw: RawLine) -> LogLine:
    return line_at(now, raw.text, raw.start, raw.end)
