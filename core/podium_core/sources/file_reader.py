"""Lines of a trial's file with metrics, while the script writes it.

The file and its folder stay open, so that the last lines can be read when the trial's container has ended. A file that
was replaced is read to its end before the new one. A file that was written again in place is read from its beginning. A
later attempt that appends to the same file continues at the stored offset. It is the same file if its first line, and
the last bytes that were read, are those of the fingerprint. The first line alone does not tell: it is the header of
every CSV file that the script writes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import PurePosixPath

from podium_core.logs.line_reader import Reader, line_reader
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import CHUNK, STREAM, LogLine, Position
from podium_core.sources.files import Files
from podium_core.sources.lines import SEEN, LineAssembler, RawLine

FIRST_BYTES = 256  # by whose hash a file is recognised
HEADER_BYTES = 1 << 16


class FileReader:
    """Reader of one file. It may be called from one thread at a time.

    `trouble`: why the last read yielded nothing; None before a read of the file. `position`: where a later reader
    continues after the lines that were taken.
    """

    def __init__(self, metrics: MetricsConfig, position: Position, place: Callable[[], Files | None]) -> None:
        """`place` returns where the file is, None until that exists. Raises ValueError where the filter is invalid."""
        self.parse: Reader = line_reader(metrics)
        self.position = position
        self.trouble: str | None = None
        self._find = place
        self._path = metrics.path
        self._csv = metrics.format == "csv"
        self._place: Files | None = None
        self._folder = self._file = -1
        self._lines = LineAssembler()
        self._ready: list[RawLine] = []
        self._reached = position
        self._bytes = 0

    def take(self, time: float) -> tuple[LogLine, ...]:
        """Return what the last reads yielded, with this time, and set the position after it."""
        ready, self._ready = self._ready, []
        self.position = self._reached
        return tuple(LogLine(time, STREAM, raw.text, raw.start, raw.end) for raw in ready)

    def explain(self) -> str:
        """Return nothing: the lines tell why they have no value."""
        return ""

    def close(self) -> None:
        """Close the file: an open file keeps its volume from being detached."""
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._folder = -1
        if self._place is not None:
            self._place.close()
            self._place = None

    def read(self, last: bool) -> bool:
        """Read at most one chunk and return whether more is there; `last`: the file does not grow any more.

        Raises OSError, or ValueError for a file that is refused.
        """
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
        self.trouble = "" if self._bytes else "the file is empty"
        return False

    def _unread(self) -> bytes | None:
        """Return the next bytes of the open file; None if the bytes before them are not those that were read."""
        seen = self._lines.seen
        data = os.pread(self._file, CHUNK, self._lines.read - len(seen))
        return data[len(seen) :] if data.startswith(seen) else None

    def _take(self, lines: list[RawLine]) -> None:
        self._ready += lines
        self._bytes = self._lines.read
        self.trouble = ""
        first = self._reached.fingerprint.partition("-")[0] or _fingerprint(self._file)
        fingerprint = f"{first}-{self._lines.read}-{_hash(self._lines.seen)}" if first else ""
        self._reached = Position(PurePosixPath(self._path).name, fingerprint, self._lines.safe if first else 0)

    def _enter(self) -> bool:
        """Open the file, at the position of an earlier agent or attempt if it is the same file."""
        if self._place is None:
            self._place = self._find()
            if self._place is None:
                return False
        place, path = self._place, PurePosixPath(self._path)
        if self._folder < 0:
            self._folder = place.folder(str(path.parent))
        try:
            self._file = place.file(self._path)
        except FileNotFoundError as missing:
            try:  # if the container has ended, its root is empty, but the folder is still open
                self._file = place.file_in(self._folder, path.name)
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
        if self._place is None:
            return False
        try:
            other = self._place.file(self._path)
        except (OSError, ValueError):
            return False
        try:
            return not os.path.sameopenfile(other, self._file)
        finally:
            os.close(other)

    def _leave(self) -> None:
        os.close(self._file)
        self._file, self._reached = -1, Position()


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
