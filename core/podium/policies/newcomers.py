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

from podium.curves.board import Floats
from podium.curves.equal_training import RUNGS, EqualTraining, Standings

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
        self._against = np.full((4, rungs), np.nan)  # and whom it was compared with

    def largest_lag(self, at: Standings, lost: NDArray[np.bool_]) -> Floats:
        """By row, in units: the largest lag behind a trial on a lower rung that is not `lost`; -inf where none is
        ahead. O(changes x (rows + rungs)), and one pass over the matrix.
        """
        table = self._table
        front = _front(at, ~lost & (at.rung < RUNGS - 1))  # none is above the last rung
        columns = (front >= 0).nonzero()[0]
        against = np.full_like(self._against, np.nan)
        leaders = front[columns]
        against[:, columns] = (
            table.best[leaders, columns],
            table.gain[leaders, columns],
            table.lead_gain[columns],
            table.ratio[columns],
        )
        changed = ((against != self._against) & ~(np.isnan(against) & np.isnan(self._against))).any(axis=0)
        rows = (self._content != table.content).nonzero()[0]
        self._against = against
        self._content[:] = table.content
        self._lag[changed & (front < 0)] = -np.inf
        self._compare(rows, columns, at.rung)
        if len(rows) < len(at.rung):
            self._compare(np.arange(len(at.rung)), (changed & (front >= 0)).nonzero()[0], at.rung)
        return cast(Floats, self._lag.max(axis=0))

    def _compare(self, rows: Rows, columns: Rows, rung: Rows) -> None:
        step = max(1, _CELLS // max(1, len(columns)))
        for start in range(0, len(rows) if len(columns) else 0, step):
            self._compare_some(rows[start : start + step], columns, rung)

    def _compare_some(self, rows: Rows, columns: Rows, rung: Rows) -> None:
        table, scale = self._table, self._scale
        cells = np.ix_(rows, columns)
        best, leader_gain, lead_gain, ratio = self._against[:, columns]
        own, gain = table.best[cells], table.gain[cells]  # copies: all below is done in place, for speed
        told = (rung[rows][:, None] > columns) & (own > -np.inf)
        unit = np.maximum(gain, np.maximum(leader_gain, lead_gain))
        unit += _TINY
        unit *= scale.unit * ratio**scale.spread
        lag = np.subtract(best, own, out=own)
        slope = np.subtract(leader_gain, gain, out=gain)
        slope *= scale.slope
        lag += slope
        lag /= unit
        told &= lag > 0.0  # what is no number tells nothing
        self._lag[np.ix_(columns, rows)] = np.where(told, lag, -np.inf).T


def _front(at: Standings, of: NDArray[np.bool_]) -> Rows:
    """By rung: the row of the best among those that stand there, the first among equals; -1 for none."""
    there = (of & (at.rung >= 0)).nonzero()[0]
    best = np.full(RUNGS, -np.inf)
    np.maximum.at(best, at.rung[there], at.value[there])
    leading = there[at.value[there] == best[at.rung[there]]][::-1]
    front = np.full(RUNGS, -1)
    front[at.rung[leading]] = leading  # the last one that is written stays
    return front
