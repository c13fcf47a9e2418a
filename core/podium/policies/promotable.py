"""Who was ever in the best part of a rung: the rule of asynchronous halving played again, arrival by arrival.

Called by asha and by hyperband without its barrier. Values may come faster than the planner looks, so that a trial is
beyond a rung says nothing of whether it was let. When each value was printed does: this is what would have been decided
had somebody looked at every evaluation, and the same after a restart. What was computed is kept from cycle to cycle;
only arrivals that come late (a clock that is behind, a report that is) make their rung be played from its beginning.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium.curves.board import Board
from podium.policies.rungs import Climb, places

_Arrival = tuple[float, int]  # when, row


def ever_promotable(
    seen: Board, found: Climb, steps: Sequence[float], eta: float, least: int, sizes: Sequence[int]
) -> NDArray[np.bool_]:
    """By row and rung: whether the trial has been in the best 1/eta, or among the best `least`, of those of its bracket
    that had come by some moment since its own arrival. Ties in time and in value go to the lower row.

    A value on a rung is an arrival there, whoever let its trial come: it is a fact, and the more there are, the better
    the choice. `sizes`: trials in each bracket, dealt by number; empty: one bracket of all. O(n), and what has changed. The caller must not write
    into it; it changes at the next cycle.
    """
    key = ("promotable", tuple(steps), eta, least, tuple(sizes))
    memory = seen.keep(key, lambda: _Replay(np.searchsorted(np.cumsum(sizes), seen.numbers, "right"), len(steps)))
    return memory.refresh(seen, found, eta, least)


class _Line:
    """One rung of one bracket, after the arrivals so far."""

    def __init__(self) -> None:
        self.latest: _Arrival = (-np.inf, -1)
        self._came = 0
        self._best: list[tuple[float, int]] = []  # value (smaller is better) and row, best first; none that diverged

    def arrive(self, arrival: _Arrival, value: float, eta: float, least: int) -> list[int]:
        """The rows that may be promotable for the first time: itself, and who has the place that there is more."""
        self.latest = arrival
        self._came += 1
        row = arrival[1]
        if value > -np.inf:
            insort(self._best, (-value, row))
        count = min(len(self._best), places(self._came, eta, least))
        if not count:
            return []
        last = self._best[count - 1]
        return [row, last[1]] if value > -np.inf and (-value, row) < last else [last[1]]


class _Replay:
    """Not movable: it goes by rows, and is made anew when trials come or go."""

    def __init__(self, bracket: NDArray[np.intp], width: int) -> None:
        self.ever = np.zeros((len(bracket), width), dtype=bool)
        self._bracket = bracket
        self._seen = np.full(len(bracket), -1)
        self._value = np.full((len(bracket), width), np.nan)
        self._time = np.full((len(bracket), width), np.inf)
        self._lines: dict[tuple[int, int], _Line] = {}

    def refresh(self, seen: Board, found: Climb, eta: float, least: int) -> NDArray[np.bool_]:
        """O(changes log n); O(n log n) for a rung of which the past is another."""
        rows = np.flatnonzero(self._seen != seen.version)
        if not len(rows):
            return self.ever
        value, time, old = found.value[rows], found.time[rows], self._time[rows]
        changed = (time != old) | ((value != self._value[rows]) & np.isfinite(time))
        fresh: dict[tuple[int, int], list[_Arrival]] = {}
        again: set[tuple[int, int]] = set()
        for place, k in np.argwhere(changed).tolist():
            row = int(rows[place])
            line = (int(self._bracket[row]), k)
            fresh.setdefault(line, []).append((float(time[place, k]), row))
            if np.isfinite(old[place, k]):  # a curve that was thinned, or begun anew
                again.add(line)
        self._seen[:] = seen.version
        self._value[rows], self._time[rows] = value, time
        for line, arrivals in fresh.items():
            kept = self._lines.get(line)
            if kept is None or line in again or min(arrivals) < kept.latest:
                kept, arrivals = self._begin(line)
            k = line[1]
            for arrival in sorted(arrivals):
                self.ever[kept.arrive(arrival, float(self._value[arrival[1], k]), eta, least), k] = True
        return self.ever

    def _begin(self, line: tuple[int, int]) -> tuple[_Line, list[_Arrival]]:
        bracket, k = line
        mine = self._bracket == bracket
        self.ever[mine, k] = False
        rows = np.flatnonzero(mine & np.isfinite(self._time[:, k])).tolist()
        kept = self._lines[line] = _Line()
        return kept, [(float(self._time[row, k]), row) for row in rows]
