"""Visible text of a log line: colours are removed, and the pieces that a terminal would overwrite are separated.

A progress bar rewrites its line with carriage returns, backspaces or cursor movements. Each rewriting is one piece.
"""

from __future__ import annotations

import re

MAX_LINE = 1 << 18  # only the last characters of a longer line are read
MAX_PIECES = 256  # only the last pieces of a line are read
MAX_ESCAPES = 4096  # only the last escape sequences of a line are read; the text before them is dropped
_MOVE = re.compile(r"\x1b\[[0-9;]*[A-HJf]")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_()#][0-9A-Za-z]?)?")


def pieces(line: str) -> list[str]:
    """Return the non-empty pieces of a line in order, at most the last MAX_PIECES."""
    line = line[-MAX_LINE:]
    if "\x1b" in line:
        parts = line.rsplit("\x1b", MAX_ESCAPES)
        line = line if len(parts) <= MAX_ESCAPES else "\x1b" + "\x1b".join(parts[1:])
        line = _ESCAPE.sub("", _MOVE.sub("\r", line))
    line = line.replace("\x08", "\r")
    if "\r" not in line:
        return [line] if line else []
    return [part for part in line.rsplit("\r", MAX_PIECES)[-MAX_PIECES:] if part]
