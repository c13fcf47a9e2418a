"""What of a trial's log is shown, and how its bytes reach the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

# On a terminal only colours remain: a tenant's log must not control it otherwise. `\r` is how progress bars redraw.
_COLOUR_OR_CONTROL = re.compile(rb"(\x1b\[[0-9;]*m)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")

Write = Callable[[bytes], None]
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options of one `podium logs`. `attempt`: None for the present one; -1 for the one before it."""

    follow: bool = False
    attempt: int | None = None
    tail: int | None = None
    since: float | None = None  # seconds
    timestamps: bool = False


def write_to_stdout(chunk: bytes) -> None:
    """Write a part of a log to standard output at once."""
    sys.stdout.buffer.write(safe(chunk) if sys.stdout.isatty() else chunk)
    sys.stdout.buffer.flush()


def note_to_stderr(text: str) -> None:
    """Print a note to standard error, apart from the log."""
    print(f"podium: note: {text}", file=sys.stderr, flush=True)


def safe(chunk: bytes) -> bytes:
    """Return the bytes without control sequences other than colours."""
    return _COLOUR_OR_CONTROL.sub(lambda match: match[1] or b"", chunk)
