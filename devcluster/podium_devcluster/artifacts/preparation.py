"""Build what the cache lacks, piece by piece, with a count and typical durations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress, duration


@dataclass(frozen=True, slots=True)
class Piece:
    """One program, file system or image that the cache lacks.

    `seconds` is the typical duration of `make` on two cores, with all dependencies to be downloaded.
    """

    title: str
    seconds: float
    make: Callable[[], object]


def build_all(pieces: Sequence[Piece], cache: Cache, progress: Progress) -> None:
    """Build the pieces in order. The first one that fails ends the run; a later run continues with it."""
    if not pieces:
        return
    total, started = sum(piece.seconds for piece in pieces), time.monotonic()
    progress.say(
        f"Building {len(pieces)} programs and images once, typically in {duration(round(total, -1))} on two cores. "
        f"Later runs take them from {cache.root}."
    )
    for number, piece in enumerate(pieces, start=1):
        with progress.step(f"[{number} of {len(pieces)}] {piece.title}", piece.seconds) as step:
            piece.make()
            spent = duration(time.monotonic() - started)
            step.note(f"{spent} so far, typically {duration(round(total, -1))} in all")
