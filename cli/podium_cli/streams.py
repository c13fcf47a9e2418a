"""Standard output and standard error: text that they cannot encode, and readers that have gone."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import IO


def escape_unprintable() -> None:
    """Escape characters that the encoding of the standard streams lacks, such as half of a surrogate pair."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def mute(stream: IO[str]) -> None:
    """Discard what is printed to the stream from now on, and what it still holds."""
    with suppress(OSError, ValueError):  # a stream of a test has no descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
