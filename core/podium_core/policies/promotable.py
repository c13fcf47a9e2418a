"""Which trials were ever in the best part of a rung: asynchronous halving replayed arrival by arrival.

`asynchronous_halving` calls it. Values may arrive faster than the planner runs, so a trial's position past a rung does
not show whether it was allowed to pass. The printing time of each value does. The replay gives what would have been
decided at every evaluation, and the same after a restart. A thinned curve may have lost its point at a rung; its
arrival time is then estimated (`thinning.reached_at`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable, reorder_rows
from podium_core.policies.rungs import RungArrivals, promotion_count

_Arrival = tuple[float, int]  # time, row
_NEVER = (np.inf, -1)


def ever_promotable(
    curves: CurveTable,
    arrivals: RungArrivals,
    steps: Sequence[float],
    eta: float,
    least: int,
    bracket: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """Return, by row and rung, whether the trial was ever promotable there.

    A trial is promotable at a rung if, at some moment since its arrival, it was in the best 1/eta (or among the best
    `least`, 0 or 1) of the trials of its bracket that had arrived. Ties in time and in value go to the lower row. True
    at the rungs below a bracket's first one, which has the bracket's number.

    A value on a rung counts as an arrival whether or not the trial was allowed to come: it is a fact, and more facts
    give a better choice. O(log n) per new arrival. A late or moved arrival, as thinning may cause, costs all later
    arrivals at its rung. Do not write into the array; it changes with the next cycle.
    """
    memory = curves.cached(("promotable", tuple(steps), eta, least), lambda: _Replay(len(curves), len(steps)))
    return memory.refresh(curves, arrivals, eta, least, bracket)


class _RungReplay:
    """One rung of one bracket after the arrivals so far; each of them can be undone."""

    def __init__(self) -> None:
        # in order: the arrival, its value, rows that it made promotable
        self._arrivals: list[tuple[_Arrival, float, list[int]]] = []
        self._ranked: list[tuple[float, int]] = []  # negated value and row, best first; without diverged trials

    def undo_from(self, moment: _Arrival, ever: NDArray[np.bool_]) -> list[int]:
        """Undo all arrivals from `moment` on; return their rows."""
        rows = []
        while self._arrivals and self._arrivals[-1][0] >= moment:
            (_, row), value, made = self._arrivals.pop()
            rows.append(row)
            ever[made] = False
            if value > -np.inf:
                del self._ranked[bisect_left(self._ranked, (-value, row))]
        return rows

    def add_arrival(self, arrival: _Arrival, value: float, eta: float, least: int, ever: NDArray[np.bool_]) -> None:
        """Add an arrival. It may make promotable its own trial and the one at the last promoted position."""
        row = arrival[1]
        if value > -np.inf:
            insort(self._ranked, (-value, row))
        made: list[int] = []
        count = min(len(self._ranked), promotion_count(len(self._arrivals) + 1, eta, least))
        if count:
            last = self._ranked[count - 1]
            eligible = {row, last[1]} if value > -np.inf and (-value, row) < last else {last[1]}
            made = [one for one in eligible if not ever[one]]
            ever[made] = True
        self._arrivals.append((arrival, value, made))


class _Replay:
    """Replay of all rungs.

    New arrivals cost what they are. A late or changed arrival repeats everything after it.
    """

    def __init__(self, rows: int, width: int) -> None:
        self._reset(rows, width)

    def _reset(self, rows: int, width: int) -> None:
        self.ever = np.zeros((rows, width), dtype=bool, order="F")
        self._bracket = np.full(rows, -1)
        self._version = np.full(rows, -1)
        self._value = np.full((rows, width), np.nan)
        self._time = np.full((rows, width), np.inf)
        self._replays: dict[tuple[int, int], _RungReplay] = {}

    def reorder(self, source: Sequence[int]) -> None:
        """Reorder the rows; the replay is kept where trials were only added, as searches do."""
        rows, width = self.ever.shape
        if list(source[:rows]) != list(range(rows)):
            self._reset(len(source), width)
            return
        self.ever = np.asfortranarray(reorder_rows(self.ever, source, False))
        self._bracket, self._version = reorder_rows(self._bracket, source, -1), reorder_rows(self._version, source, -1)
        self._value, self._time = reorder_rows(self._value, source, np.nan), reorder_rows(self._time, source, np.inf)

    def refresh(
        self, curves: CurveTable, arrivals: RungArrivals, eta: float, least: int, bracket: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        self._assign_brackets(bracket)
        rows = np.flatnonzero(self._version != curves.version)
        if not len(rows):
            return self.ever
        value, time, old = arrivals.value[rows], arrivals.time[rows], self._time[rows]
        changed = (time != old) | ((value != self._value[rows]) & np.isfinite(time))
        self._version[rows], self._value[rows], self._time[rows] = curves.version[rows], value, time
        # first changed moment, and the rows with new or changed arrivals
        stale: dict[tuple[int, int], tuple[_Arrival, set[int]]] = {}
        for index, k in np.argwhere(changed & (np.arange(old.shape[1]) >= bracket[rows, None])).tolist():
            row = int(rows[index])
            key = (int(bracket[row]), k)
            moment, changed_rows = stale.get(key, (_NEVER, set()))
            moment = min(moment, (float(old[index, k]), row), (float(time[index, k]), row))
            stale[key] = (moment, changed_rows | {row})
        for key, (moment, changed_rows) in stale.items():
            self._replay_from(key, moment, changed_rows, eta, least)
        return self.ever

    def _assign_brackets(self, bracket: NDArray[np.intp]) -> None:
        reassigned = self._bracket != bracket
        if not reassigned.any():
            return
        if (self._bracket[reassigned] >= 0).any():  # the brackets have other sizes
            self._reset(*self.ever.shape)
            reassigned[:] = True
        self._bracket[reassigned] = bracket[reassigned]
        self.ever[reassigned] = np.arange(self.ever.shape[1]) < bracket[reassigned, None]

    def _replay_from(self, key: tuple[int, int], moment: _Arrival, rows: set[int], eta: float, least: int) -> None:
        replay, k = self._replays.setdefault(key, _RungReplay()), key[1]
        ever, value, time = self.ever[:, k], self._value[:, k], self._time[:, k]
        rows.update(replay.undo_from(moment, ever))
        for arrival in sorted((float(time[row]), row) for row in rows):
            if arrival < _NEVER:
                replay.add_arrival(arrival, float(value[arrival[1]]), eta, least, ever)
