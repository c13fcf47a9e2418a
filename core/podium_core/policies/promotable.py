"""Who was ever in the best part of a rung: the rule of asynchronous halving played again, arrival by arrival.

Called by `asynchronous`. Values may come faster than the planner looks, so that a trial is beyond a rung says nothing
of whether it was let. When each value was printed does: this is what would have been decided had somebody looked at
every evaluation, and the same after a restart. A curve that is thinned may lose its point at a rung: when the trial
came there is reckoned then (`thinning.came_at`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import Board, moved
from podium_core.policies.rungs import Climb, places

_Arrival = tuple[float, int]  # when, row
_NEVER = (np.inf, -1)


def ever_promotable(
    seen: Board, found: Climb, steps: Sequence[float], eta: float, least: int, bracket: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """By row and rung: whether the trial has been in the best 1/eta, or among the best `least` (0 or 1), of those of
    its bracket that had come by some moment since its own arrival. Ties in time and in value go to the lower row.
    True at the rungs below a bracket's first, which has its number.

    A value on a rung is an arrival there, whoever let its trial come: it is a fact, and the more there are, the better
    the choice. O(log n) a new arrival; one that is late or has moved, as thinning may do, costs all arrivals at its
    rung since. The caller must not write into it; it changes at the next cycle.
    """
    memory = seen.keep(("promotable", tuple(steps), eta, least), lambda: _Replay(len(seen), len(steps)))
    return memory.refresh(seen, found, eta, least, bracket)


class _Line:
    """One rung of one bracket, after the arrivals so far, each of which can be undone."""

    def __init__(self) -> None:
        self._came: list[tuple[_Arrival, float, list[int]]] = []  # in order; its value; rows that it made promotable
        self._best: list[tuple[float, int]] = []  # value (smaller is better) and row, best first; none that diverged

    def rewind(self, moment: _Arrival, ever: NDArray[np.bool_]) -> list[int]:
        """To before that moment: the rows whose arrival is to be played again."""
        rows = []
        while self._came and self._came[-1][0] >= moment:
            (_, row), value, made = self._came.pop()
            rows.append(row)
            ever[made] = False
            if value > -np.inf:
                del self._best[bisect_left(self._best, (-value, row))]
        return rows

    def arrive(self, arrival: _Arrival, value: float, eta: float, least: int, ever: NDArray[np.bool_]) -> None:
        """Promotable for the first time may be: itself, and who has the place that there is more."""
        row = arrival[1]
        if value > -np.inf:
            insort(self._best, (-value, row))
        made: list[int] = []
        count = min(len(self._best), places(len(self._came) + 1, eta, least))
        if count:
            last = self._best[count - 1]
            able = {row, last[1]} if value > -np.inf and (-value, row) < last else {last[1]}
            made = [one for one in able if not ever[one]]
            ever[made] = True
        self._came.append((arrival, value, made))


class _Replay:
    """All rungs as they were played. New arrivals cost what they are; one that comes late, or that is another than it
    was, has what came after it played again.
    """

    def __init__(self, rows: int, width: int) -> None:
        self._begin(rows, width)

    def _begin(self, rows: int, width: int) -> None:
        self.ever = np.zeros((rows, width), dtype=bool, order="F")
        self._bracket = np.full(rows, -1)
        self._seen = np.full(rows, -1)
        self._value = np.full((rows, width), np.nan)
        self._time = np.full((rows, width), np.inf)
        self._lines: dict[tuple[int, int], _Line] = {}

    def move(self, source: Sequence[int]) -> None:
        """Kept where trials were only added, as searches do: arrivals are known by row."""
        rows, width = self.ever.shape
        if list(source[:rows]) != list(range(rows)):
            self._begin(len(source), width)
            return
        self.ever = np.asfortranarray(moved(self.ever, source, False))
        self._bracket, self._seen = moved(self._bracket, source, -1), moved(self._seen, source, -1)
        self._value, self._time = moved(self._value, source, np.nan), moved(self._time, source, np.inf)

    def refresh(
        self, seen: Board, found: Climb, eta: float, least: int, bracket: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        self._deal(bracket)
        rows = np.flatnonzero(self._seen != seen.version)
        if not len(rows):
            return self.ever
        value, time, old = found.value[rows], found.time[rows], self._time[rows]
        changed = (time != old) | ((value != self._value[rows]) & np.isfinite(time))
        self._seen[rows], self._value[rows], self._time[rows] = seen.version[rows], value, time
        again: dict[tuple[int, int], tuple[_Arrival, set[int]]] = {}  # since when; the rows that are new or others
        for place, k in np.argwhere(changed & (np.arange(old.shape[1]) >= bracket[rows, None])).tolist():
            row = int(rows[place])
            line = (int(bracket[row]), k)
            moment, those = again.get(line, (_NEVER, set()))
            moment = min(moment, (float(old[place, k]), row), (float(time[place, k]), row))
            again[line] = (moment, those | {row})
        for line, (moment, those) in again.items():
            self._play(line, moment, those, eta, least)
        return self.ever

    def _deal(self, bracket: NDArray[np.intp]) -> None:
        fresh = self._bracket != bracket
        if not fresh.any():
            return
        if (self._bracket[fresh] >= 0).any():  # the brackets have other sizes
            self._begin(*self.ever.shape)
            fresh[:] = True
        self._bracket[fresh] = bracket[fresh]
        self.ever[fresh] = np.arange(self.ever.shape[1]) < bracket[fresh, None]

    def _play(self, at: tuple[int, int], moment: _Arrival, rows: set[int], eta: float, least: int) -> None:
        line, k = self._lines.setdefault(at, _Line()), at[1]
        ever, value, time = self.ever[:, k], self._value[:, k], self._time[:, k]
        rows.update(line.rewind(moment, ever))
        for arrival in sorted((float(time[row]), row) for row in rows):
            if arrival < _NEVER:
                line.arrive(arrival, float(value[arrival[1]]), eta, least, ever)
