"""Restores that the driver refuses although the memory is there: when such a process is given up as lost.

Used by the method `cuda-checkpoint`. After a restore without memory driver 580.159 goes on to call the process
CHECKPOINTED and answers every further restore with an error (benchmarks/results/bench-gpu.md). Who asked first knows it
by OUT_OF_MEMORY and kills it; an agent that began after that one died sees the refusals only, and so it does of every
other process that the driver will never bring back. Lost with the agent: the next one counts anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

LOST_SECONDS = 60.0  # from the first refusal on
LOST_TRIES = 5  # and at least so many: its turn may come but once in that time


class Refusals:
    """By container. `clock`: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}  # when the first was, and how many there were

    def lost(self, containers: Iterable[str]) -> str:
        """One more, of a trial with these containers. Why it is given up, as a sentence; empty: it is tried again."""
        now = self._clock()
        for container in containers:
            since, tries = self._seen.get(container, (now, 0))
            self._seen[container] = since, tries + 1
            if now - since >= LOST_SECONDS and tries + 1 >= LOST_TRIES:
                return f"refused {tries + 1} times in {now - since:.0f} s with the memory free; its last save is left"
        return ""

    def forget(self, containers: Iterable[str]) -> None:
        """They are back, or gone."""
        for container in containers:
            self._seen.pop(container, None)
