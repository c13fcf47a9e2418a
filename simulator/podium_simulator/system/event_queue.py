"""Virtual time: what will happen, soonest first, equal times in the order in which they were scheduled. Used by the
engine's parts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Protocol


class Guard(Protocol):
    """Something whose plans change: what was scheduled for an older `act` of it does not happen."""

    act: int


class Queue:
    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0  # that happened
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...], Guard | None, int]] = []
        self._count = 0

    def at(self, time: float, call: Callable[..., None], *given: Any, guard: Guard | None = None) -> None:
        """Times that are past happen now; an infinite one never."""
        if time == float("inf"):
            return
        self._count += 1
        act = 0 if guard is None else guard.act
        heapq.heappush(self._heap, (max(time, self.now), self._count, call, given, guard, act))

    def after(self, seconds: float, call: Callable[..., None], *given: Any, guard: Guard | None = None) -> None:
        self.at(self.now + seconds, call, *given, guard=guard)

    def step(self) -> bool:
        """The next event; False when there is none."""
        while self._heap:
            time, _, call, given, guard, act = heapq.heappop(self._heap)
            if guard is not None and guard.act != act:
                continue
            self.now = time
            self.events += 1
            call(*given)
            return True
        return False
