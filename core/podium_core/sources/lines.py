"""Lines of a file that grows: bytes in, whole lines out, with the offset at which a later reader continues. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from podium_core.sources.batch import LONGEST_LINE

SEEN = 64  # bytes before the read offset by which a file that was rewritten in place is recognised


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line with the file offsets of its first byte and after its last one."""

    text: str
    start: int
    end: int


class LineAssembler:
    """Assembler of the lines of one file. Of a line without an end, the first LONGEST_LINE bytes are kept."""

    def __init__(self, offset: int = 0, before: bytes = b"") -> None:
        """Begin at an offset; `before`: the last bytes before it. The rest of a line that they begin is dropped."""
        self._rest = bytearray()
        self._dropping = bool(before) and not before.endswith(b"\n")
        self.safe = offset  # of the first byte of the line that is not complete
        self.read = offset  # of the next byte to feed
        self.seen = before  # the last bytes that were fed

    def feed(self, data: bytes) -> list[RawLine]:
        """Return the lines that these further bytes complete."""
        lines: list[RawLine] = []
        self.seen = (self.seen + data)[-SEEN:]
        at = self.read
        self.read += len(data)
        *whole, rest = data.split(b"\n")
        for piece in whole:
            at += len(piece) + 1
            self._add(piece)
            if not self._dropping:
                lines.append(RawLine(self._rest.decode(errors="replace"), self.safe, at))
            self._rest.clear()
            self._dropping = False
            self.safe = at
        self._add(rest)
        if len(self._rest) >= LONGEST_LINE:
            lines.append(RawLine(self._rest.decode(errors="replace"), self.safe, self.read))
            self._rest.clear()
            self._dropping = True
        if self._dropping:
            self.safe = self.read
        return lines

    def end(self) -> list[RawLine]:
        """Return the last line of a file that will not grow, although nothing ends it."""
        lines = [RawLine(self._rest.decode(errors="replace"), self.safe, self.read)] if self._rest else []
        self._rest.clear()
        self.safe = self.read
        return lines

    def _add(self, piece: bytes) -> None:
        if not self._dropping:
            self._rest += piece[: LONGEST_LINE - len(self._rest)]
