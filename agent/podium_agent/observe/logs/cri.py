"""The CRI log format, `<time> <stdout|stderr> <P|F>[:more] <text>` a line; after P the line continues in the next one.

The tail uses it. Pure: bytes in, whole lines out, with the offset up to which everything was consumed. The metrics
reader corrects the times of the lines (`podium_core.sources.batch.bounded_times`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from podium_core.sources.batch import LONGEST_LINE, LogLine


@dataclass(slots=True)
class _Pending:
    start: int
    text: bytearray


class Assembler:
    """Assembler of line pieces for each stream.

    `safe` is the offset at which a restarted reader loses nothing.
    """

    def __init__(self, offset: int) -> None:
        self._rest = b""
        self._at = offset  # of the first byte of `_rest`
        self._pending: dict[str, _Pending] = {}

    @property
    def read(self) -> int:
        """Offset up to which bytes were fed."""
        return self._at + len(self._rest)

    @property
    def safe(self) -> int:
        """Offset from which a restarted reader loses no line."""
        return min([self._at, *(pending.start for pending in self._pending.values())])

    def feed(self, data: bytes) -> list[LogLine]:
        """Return the lines that these further bytes complete."""
        lines: list[LogLine] = []
        *whole, self._rest = (self._rest + data).split(b"\n")
        for raw in whole:
            start = self._at
            self._at += len(raw) + 1
            line = self._piece(raw, start)
            if line is not None:
                lines.append(line)
        return lines

    def _piece(self, raw: bytes, start: int) -> LogLine | None:
        parts = raw.split(b" ", 3)
        if len(parts) < 3 or parts[1] not in (b"stdout", b"stderr"):
            return None  # not a line of a runtime: a file cut short by a full disk, say
        stream = parts[1].decode()
        text = parts[3] if len(parts) == 4 else b""
        pending = self._pending.get(stream)
        if parts[2].split(b":")[0] == b"P":
            if pending is None:
                pending = self._pending[stream] = _Pending(start, bytearray())
            if len(pending.text) < LONGEST_LINE:
                pending.text += text
            return None
        if pending is not None:
            del self._pending[stream]
            text, start = bytes(pending.text) + text, pending.start
        return LogLine(_time(parts[0]), stream, text[:LONGEST_LINE].decode(errors="replace"), start, self._at)


def _time(stamp: bytes) -> float:
    """Convert RFC 3339 with nanoseconds to seconds since 1970; return 0 for any other text."""
    text = stamp.decode(errors="replace")
    head, dot, tail = text.partition(".")
    if dot:
        zone = tail.lstrip("0123456789")
        digits = tail[: len(tail) - len(zone)]
        text = f"{head}.{digits[:6]}{zone}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
