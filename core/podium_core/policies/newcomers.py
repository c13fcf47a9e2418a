"""Who is behind a less trained trial, at that trial's training? Used by `envelope`.

At its own rung a trial that runs ahead alone is its own envelope and could never be overtaken; so each trial is held
also against the best of those that stand on each lower rung, where it has been before. Kept with the table of equal
training: a new value costs its own row, and a rung whose best newcomer is another one its column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import RUNGS, EqualTraining, Standings
from podium_core.curves.curve_table import Floats

_TINY = 1e-12
_CELLS = 8192  # that are compared at once: larger copies would be new pages each time
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Scale:
    """What a lag is measured in; the constants of the same names of `envelope`."""

    unit: float
    spread: float
    slope: float


class Newcomers:
    """Of one table: `_lag[rung, row]`, how far each trial is behind the best that stands on the rung; -inf where it has
    not been above it, or nobody stands there.
    """

    def __init__(self, table: EqualTraining, scale: Scale) -> None:
        self._table = table
        self._scale = scale
        rows, rungs = table.best.shape
        self._lag = np.full((rungs, rows), -np.inf)
        self._content = np.full(rows, -1)  # of the table, by row, when it was compared last
        self._front = np.full(rungs, -1)  # by rung: whom it was compared with
        self._measured = np.zeros(rungs, dtype=np.intp)  # of the table: of who stands on a rung, nothing else changes

    def largest_lag(self, at: Standings, lost: NDArray[np.bool_]) -> Floats:
        """By row, in units: the largest lag behind a trial on a lower rung that is not `lost`; -inf where none is
        ahead. O(changes x (rows + rungs)), and one pass over the matrix.
        """
        table = self._table
        front = _front(at, ~lost & (at.rung < RUNGS - 1))  # none is above the last rung
        changed = (front != self._front) | (table.measured != self._measured)
        rows = (self._content != table.content).nonzero()[0]
        self._front, self._measured[:], self._content[:] = front, table.measured, table.content
        columns = (front >= 0).nonzero()[0]
        leaders = self._leaders(columns)
        self._lag[(changed & (front < 0)).nonzero()[0]] = -np.inf
        if len(rows) * len(columns) > _CELLS:
            again = np.arange(len(columns))
        else:
            again = changed[columns].nonzero()[0]
            best, gain = table.best[rows].take(columns, axis=1), table.gain[rows].take(columns, axis=1)
            self._lag[columns[:, None], rows] = self._behind(best, gain, leaders, at.rung[rows, None] > columns).T
        step = max(1, _CELLS // len(at.rung))
        for start in range(0, len(again), step):
            some = again[start : start + step]
            there = columns[some]
            best, gain = table.best.take(there, axis=1), table.gain.take(there, axis=1)
            self._lag[there] = self._behind(best, gain, leaders[:, some], at.rung[:, None] > there).T
        ends = (int(columns[0]), int(columns[-1]) + 1) if len(columns) else (0, RUNGS)  # all others are -inf
        return cast(Floats, self._lag[slice(*ends)].max(axis=0))

    def _leaders(self, columns: Rows) -> Floats:
        """Of those who lead on these rungs: value, gain, the least that is counted as gained there, and the unit's
        size. (4, columns).
        """
        table, scale, front = self._table, self._scale, self._front[columns]
        gain = table.gain[front, columns]
        least = np.maximum(gain, table.lead_gain[columns])
        return np.array([table.best[front, columns], gain, least, scale.unit * table.ratio[columns] ** scale.spread])

    def _behind(self, own: Floats, gain: Floats, leaders: Floats, above: NDArray[np.bool_]) -> Floats:
        """How far trials with these values and gains, (trials, columns), are behind the leaders; -inf where they are
        not, or not `above` that rung. Done in place, for speed: `own` and `gain` are lost.
        """
        best, leader_gain, least, size = leaders
        above &= own > -np.inf
        unit = np.maximum(gain, least)
        unit += _TINY
        unit *= size
        lag = np.subtract(best, own, out=own)
        slope = np.subtract(leader_gain, gain, out=gain)
        slope *= self._scale.slope
        lag += slope
        lag /= unit
        above &= lag > 0.0  # what is no number tells nothing
        return np.where(above, lag, -np.inf)


def _front(at: Standings, of: NDArray[np.bool_]) -> Rows:
    """By rung: the row of the best among those that stand there, the first among equals; -1 for none."""
    there = (of & (at.rung >= 0)).nonzero()[0][::-1]
    there = there[at.value[there].argsort(kind="stable")]
    front = np.full(RUNGS, -1)
    front[at.rung[there]] = there  # the last one that is written stays
    return front
