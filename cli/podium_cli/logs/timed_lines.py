"""Lines with timestamps from a stream of bytes, in bounded memory, and where to continue after a broken connection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST = 1 << 16  # bytes of a line that are kept; a longer line is passed on in pieces
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d)) ?")


@dataclass(frozen=True, slots=True)
class Piece:
    """A line, or a piece of a long one.

    `time` is empty for a further piece, and for a line without a timestamp.
    """

    time: str
    text: bytes
    first: bool = True


class LineSplitter:
    """Cuts a stream into lines; the API server puts a timestamp and a space before each line."""

    def __init__(self) -> None:
        self._rest = b""
        self._inside = False  # a first piece of the current line was passed on

    def feed(self, chunk: bytes) -> Iterator[Piece]:
        """Yield the lines that the chunk completes."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            yield self._piece(line + b"\n")
            self._inside = False
        while len(self._rest) > LONGEST:
            yield self._piece(self._rest[:LONGEST])
            self._rest, self._inside = self._rest[LONGEST:], True

    def end(self) -> Iterator[Piece]:
        """Yield the last line if it has no line break."""
        if self._rest:
            yield self._piece(self._rest)
        self._rest, self._inside = b"", False

    def _piece(self, text: bytes) -> Piece:
        if self._inside:
            return Piece("", text, first=False)
        match = _TIME.match(text)
        if match is None:  # a sentence of the kubelet instead of a line
            return Piece("", text)
        return Piece(match[1].decode(), text[match.end() :])


class Position:
    """How far a log was shown, so that a new connection repeats no line and omits none.

    The API server continues from a time in whole seconds, so it sends lines again. Several lines may have one time.
    Within a connection times do not matter, because the clock of a node may be set back.
    """

    def __init__(self) -> None:
        self.time = ""
        self._count = 0  # lines shown with that time
        self._again = 0  # of those, lines that the new connection has sent again
        self._catching_up = False
        self._showing = False

    def reconnect(self) -> None:
        """Expect lines again that were shown."""
        self._again, self._catching_up = 0, bool(self.time)

    def is_new(self, piece: Piece) -> bool:
        """Return whether the piece was not shown yet, and count it as shown."""
        if not piece.time:
            return piece.first or self._showing
        self._showing = not self._was_shown(piece.time)
        if self._showing:
            self._catching_up = False
            self._count = self._count + 1 if piece.time == self.time else 1
            self.time = piece.time
        return self._showing

    def _was_shown(self, time: str) -> bool:
        if not self._catching_up or time > self.time:
            return False
        if time == self.time:
            self._again += 1
            return self._again <= self._count
        return True
