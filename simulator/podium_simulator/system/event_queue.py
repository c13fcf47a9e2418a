"""Event queue on virtual time: the soonest event first, equal times in the order of scheduling."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Protocol


class Versioned(Protocol):
    """Object whose plans change: events that were scheduled for an older `version` of it are dropped."""

    version: int


class EventQueue:
    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0  # number of events that happened
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...], Versioned | None, int]] = []
        self._count = 0

    def at(self, time: float, call: Callable[..., None], *given: Any, guard: Versioned | None = None) -> None:
        """Schedule a call. A past time means now; an infinite one means never."""
        if time == float("inf"):
            return
        self._count += 1
        version = 0 if guard is None else guard.version
        heapq.heappush(self._heap, (max(time, self.now), self._count, call, given, guard, version))

    def after(self, seconds: float, call: Callable[..., None], *given: Any, guard: Versioned | None = None) -> None:
        self.at(self.now + seconds, call, *given, guard=guard)

    def step(self) -> bool:
        """Run the next event; return False when there is none."""
        while self._heap:
            time, _, call, given, guard, version = heapq.heappop(self._heap)
            if guard is not None and guard.version != version:
                continue
            self.now = time
            self.events += 1
            call(*given)
            return True
        return False
