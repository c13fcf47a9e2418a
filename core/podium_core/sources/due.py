"""When a source looks again, by a clock that its caller gives."""

from __future__ import annotations

from collections.abc import Callable


def due_every(seconds: float, clock: Callable[[], float]) -> Callable[[], bool]:
    """Return a function that answers True at most once in this many seconds of the clock."""
    next_at = 0.0

    def due() -> bool:
        nonlocal next_at
        now = clock()
        if now < next_at:
            return False
        next_at = now + seconds
        return True

    return due
