"""Restores that the driver refuses although the memory is there: when such a process is given up as lost.

Used by the method `cuda-checkpoint`. After a restore without memory driver 580.159 goes on to call the process
CHECKPOINTED and answers every further restore with an error (benchmarks/results/bench-gpu.md). Who asked first knows it
by OUT_OF_MEMORY and kills it; an agent that began after that one died sees the refusals only, and so it does of every
other process that the driver will never bring back. Lost with the agent: the next one counts anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

LOST_SECONDS = 60.0  # of trying
LONGEST_GAP = 15.0  # between two refusals that counts: in between its turn may have been over for hours


class Refusals:
    """By container. `clock`: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[float, float, int]] = {}  # when the last was, seconds of trying, how many

    def lost(self, containers: Iterable[str]) -> str:
        """One more, of a trial with these containers. Why it is given up, as a sentence; empty: it is tried again."""
        now = self._clock()
        for container in containers:
            last, tried, count = self._seen.get(container, (now, 0.0, 0))
            tried += min(LONGEST_GAP, now - last)
            self._seen[container] = now, tried, count + 1
            if tried >= LOST_SECONDS:
                return f"refused {count + 1} times with the memory free; its last save is left"
        return ""

    def forget(self, containers: Iterable[str]) -> None:
        """They are back, or gone."""
        for container in containers:
            self._seen.pop(container, None)
