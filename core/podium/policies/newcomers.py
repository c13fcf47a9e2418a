"""Who is behind a less trained trial, at that trial's training? Used by `envelope`.

At its own rung a trial that runs ahead alone is its own envelope and could never be overtaken; so each trial is held
also against the best of those that stand on each lower rung, where it has been before. Kept with the table of equal
training: a new value costs its own row, and a rung whose best newcomer is another one its column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.curves.board import Floats
from podium.curves.equal_training import EqualTraining, Standings

_TINY = 1e-12
_BLOCK = 256  # rows that are compared at once: larger copies would be new pages each time
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
        there = ((at.rung >= 0) & (at.rung < len(table.grid) - 1) & ~lost).nonzero()[0]  # none is above the last rung
        front = np.full(len(table.grid), -1)  # by rung: the best of those that stand on it, the first row among equals
        rising = there[(-at.value[there]).argsort(kind="stable")[::-1]]
        front[at.rung[rising]] = rising  # the last one that is written stays
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
        for start in range(0, len(rows), _BLOCK):
            self._compare(rows[start : start + _BLOCK], columns, at.rung)
        again = (changed & (front >= 0)).nonzero()[0]
        if len(again) and len(rows) < len(at.rung):
            everyone = np.arange(len(at.rung))
            for start in range(0, len(everyone), _BLOCK):
                self._compare(everyone[start : start + _BLOCK], again, at.rung)
        largest = np.fmax.reduce(self._lag, axis=0)  # what is no number tells nothing
        return np.where(largest > 0.0, largest, -np.inf)

    def _compare(self, rows: Rows, columns: Rows, rung: Rows) -> None:
        if not len(columns):
            return
        table, scale = self._table, self._scale
        cells = np.ix_(rows, columns)
        best, leader_gain, lead_gain, ratio = self._against[:, columns]
        own, gain = table.best[cells], table.gain[cells]  # copies: all below is done in place, for speed
        hidden = (rung[rows][:, None] <= columns) | ~(own > -np.inf)
        unit = np.maximum(gain, np.maximum(leader_gain, lead_gain))
        unit += _TINY
        unit *= scale.unit * ratio**scale.spread
        lag = np.subtract(best, own, out=own)
        slope = np.subtract(leader_gain, gain, out=gain)
        slope *= scale.slope
        lag += slope
        lag /= unit
        lag[hidden] = -np.inf
        self._lag[np.ix_(columns, rows)] = lag.T
