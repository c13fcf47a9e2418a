"""Follow the log of one attempt from a byte offset: complete lines only, in bounded memory and time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from podium_core.logs.readings import ParsedLine, Reader
from podium_core.sources.batch import Batch, LogLine, Position

STREAM = "stdout"
CHUNK = 1 << 18  # bytes of one read
LONGEST_LINE = 1 << 20  # a longer line is cut into several


def _nothing(_: str) -> list[ParsedLine]:
    """Read nothing: the follower of the log wants the lines alone."""
    return []


class LogFollower:
    """Reader of a log file that grows.

    `offset` is that of the first byte which no returned line contains; a later reader continues there.
    """

    def __init__(self, path: Path, offset: int = 0, parse: Reader = _nothing) -> None:
        self.parse = parse
        self.path = path
        self.offset = offset
        self._rest = b""

    @property
    def position(self) -> Position:
        """Return where a later follower continues."""
        return Position(self.path.name, "", self.offset)

    def read(self, now: float, *, complete: bool = False) -> Batch:
        """Return the next lines, with this time.

        `complete`: the file does not grow any more, so its last line may lack a line break.
        """
        piece = self._next_piece()
        data = self._rest + piece
        more = len(piece) == CHUNK
        parts = data.split(b"\n")
        rest = parts.pop()
        lines = []
        for part in parts:
            lines += self._lines(part, now)
            self.offset += 1
        if len(rest) > LONGEST_LINE or (complete and not more and rest):
            lines += self._lines(rest, now)
            rest = b""
        self._rest = rest
        return Batch(tuple(lines), self.position, more)

    def explain(self) -> str:
        """Return nothing: the lines tell why they have no value."""
        return ""

    def close(self) -> None:
        """Do nothing: the log is open only while it is read."""

    def _lines(self, data: bytes, now: float) -> list[LogLine]:
        lines = []
        for at in range(0, max(1, len(data)), LONGEST_LINE):
            part = data[at : at + LONGEST_LINE]
            start, self.offset = self.offset, self.offset + len(part)
            lines.append(LogLine(now, STREAM, part.decode("utf-8", "replace"), start, self.offset))
        return lines

    def _next_piece(self) -> bytes:
        with suppress(FileNotFoundError), self.path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), CHUNK, self.offset + len(self._rest))
        return b""


def last_text(path: Path, most: int) -> str:
    """Return the last `most` bytes of a file as text; empty if it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        return file.read(most).decode("utf-8", "replace")
    return ""


def last_lines(path: Path, count: int, most: int = 4096) -> tuple[str, ...]:
    """Return the last lines of a file that are not empty, from its last `most` bytes."""
    return tuple([line for line in last_text(path, most).splitlines() if line.strip()][-count:])
