"""Lines of a trial's metrics, in batches, each with the position from which a later reader continues. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

CHUNK = 1 << 16  # bytes of one read; hostile lines of this size take some 40 ms to parse
LONGEST_LINE = 1 << 20
STREAM = "metrics"  # of lines that no container runtime wrote
TOLERANCE = 2.0  # seconds by which the node's clock may differ from the API server's before its times are corrected


@dataclass(frozen=True, slots=True)
class LogLine:
    """One whole line, with the file offsets of its first piece and after its last one."""

    time: float
    stream: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Position:
    """Position from which a restarted reader continues.

    `file` is for people, `fingerprint` identifies the file, `offset` is a byte offset. `files`: offsets in several
    files by their names, for a source that has several.
    """

    file: str = ""
    fingerprint: str = ""
    offset: int = 0
    files: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines of one read, and the position after them."""

    lines: tuple[LogLine, ...]
    position: Position
    more: bool  # more than one chunk was there: read again at once


def bounded_times(lines: Sequence[LogLine], previous: float, now: float, ahead: float) -> tuple[LogLine, ...]:
    """Return the lines with times that never decrease, from `previous` on, and are never after `now`.

    The runtime writes the times of a log by the wall clock of the node, and a script those of its events. That clock
    may be wrong or be set. A curve needs times that agree with those of other nodes.

    `previous`: the time of the line before. `ahead`: seconds by which the node's clock is ahead of the clock to which
    `previous` and `now` belong (the API server's, or that of a local run).
    """
    correction = ahead if abs(ahead) > TOLERANCE else 0.0
    result, last = [], min(previous, now)
    for line in lines:
        last = min(max(line.time - correction, last), now)
        result.append(line if line.time == last else replace(line, time=last))
    return tuple(result)
