"""Follow the log of one attempt from a byte offset: complete lines only, in bounded memory and time."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 18  # bytes of one read
LONGEST_LINE = 1 << 20  # a longer line is cut into several


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line: when it was read, its text, and the offset of its first byte."""

    time: float
    text: str
    start: int


class LogFollower:
    """Reader of a log file that grows.

    `offset` is that of the first byte which no returned line contains; a later reader continues there.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self._rest = b""

    def read(self, now: float, *, complete: bool = False) -> tuple[list[LogLine], bool]:
        """Return the next lines, and whether there may be more to read at once.

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
        return lines, more

    def _lines(self, data: bytes, now: float) -> list[LogLine]:
        lines = []
        for at in range(0, max(1, len(data)), LONGEST_LINE):
            part = data[at : at + LONGEST_LINE]
            lines.append(LogLine(now, part.decode("utf-8", "replace"), self.offset))
            self.offset += len(part)
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
