"""Lag of each trial behind less trained trials, at their training. Used by `envelope`.

At its own column, a trial that is alone ahead is the leader and could never be overtaken. So each trial is also
compared with the best of the trials that stand at each lower column, which it has passed itself.

Formula. For a column c let j be the trial with the best value among those that stand at c. The lag of a trial i that
stands above c, in units:
  lag_i(c) = (best_j - best_i + slope (gain_j - gain_i)) / unit(c),  all values at column c
  unit(c) = unit gain_ratio(c)^spread max(gain_i, gain_j, leader_gain(c))
The result is the largest positive lag over all c. The matrix of lags is kept with the aligned curves: a new value costs
its own row, and a column whose best trial changes costs that column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import GRID_SIZE, AlignedCurves, Standings
from podium_core.curves.curve_table import Floats

_TINY = 1e-12
_CELLS = 8192  # cells that are compared at once; larger temporary arrays are slower
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class LagScale:
    """Scale of a lag: the constants of the same names of `envelope`."""

    unit: float
    spread: float
    slope: float


class LagsBehindLessTrained:
    """Lags for one table of aligned curves.

    `_lag[column, row]`: lag of each trial behind the best one that stands at the column; -inf where the trial is not
    above the column, or no trial stands there.
    """

    def __init__(self, aligned: AlignedCurves, scale: LagScale) -> None:
        self._aligned = aligned
        self._scale = scale
        rows, columns = aligned.best.shape
        self._lag = np.full((columns, rows), -np.inf)
        self._row_version = np.full(rows, -1)  # row versions at the last comparison
        self._best_row = np.full(columns, -1)  # by column: row of the best trial at the last comparison
        self._column_version = np.zeros(columns, dtype=np.intp)  # column versions at the last comparison

    def largest_lag(self, at: Standings, diverged: NDArray[np.bool_]) -> Floats:
        """Return, by row, the largest lag behind a trial at a lower column that has not diverged.

        -inf where there is no such lag. O(changes x (rows + columns)), and one pass over the matrix.
        """
        aligned = self._aligned
        best_row = _best_row(at, ~diverged & (at.column < GRID_SIZE - 1))  # no trial is above the last column
        changed = (best_row != self._best_row) | (aligned.column_version != self._column_version)
        rows = (self._row_version != aligned.row_version).nonzero()[0]
        self._best_row, self._column_version[:], self._row_version[:] = (
            best_row,
            aligned.column_version,
            aligned.row_version,
        )
        columns = (best_row >= 0).nonzero()[0]
        best_trials = self._best_trials(columns)
        self._lag[(changed & (best_row < 0)).nonzero()[0]] = -np.inf
        if len(rows) * len(columns) > _CELLS:
            stale = np.arange(len(columns))
        else:
            stale = changed[columns].nonzero()[0]
            best, gain = aligned.best[rows].take(columns, axis=1), aligned.gain[rows].take(columns, axis=1)
            self._lag[columns[:, None], rows] = self._lags(best, gain, best_trials, at.column[rows, None] > columns).T
        step = max(1, _CELLS // len(at.column))
        for start in range(0, len(stale), step):
            some = stale[start : start + step]
            there = columns[some]
            best, gain = aligned.best.take(there, axis=1), aligned.gain.take(there, axis=1)
            self._lag[there] = self._lags(best, gain, best_trials[:, some], at.column[:, None] > there).T
        ends = (int(columns[0]), int(columns[-1]) + 1) if len(columns) else (0, GRID_SIZE)  # all others are -inf
        return cast(Floats, self._lag[slice(*ends)].max(axis=0))

    def _best_trials(self, columns: Rows) -> Floats:
        """Return value, gain, smallest counted gain and size of the unit of the best trials: (4, columns)."""
        aligned, scale, best_row = self._aligned, self._scale, self._best_row[columns]
        gain = aligned.gain[best_row, columns]
        least = np.maximum(gain, aligned.leader_gain[columns])
        return np.array(
            [aligned.best[best_row, columns], gain, least, scale.unit * aligned.gain_ratio[columns] ** scale.spread]
        )

    def _lags(self, own: Floats, gain: Floats, best_trials: Floats, above: NDArray[np.bool_]) -> Floats:
        """Return the lags of trials with these values and gains, (trials, columns); -inf for none.

        In place for speed: `own` and `gain` are overwritten. Only trials that are `above` the column count.
        """
        best, leader_gain, least, size = best_trials
        above &= own > -np.inf
        unit = np.maximum(gain, least)
        unit += _TINY
        unit *= size
        lag = np.subtract(best, own, out=own)
        slope = np.subtract(leader_gain, gain, out=gain)
        slope *= self._scale.slope
        lag += slope
        lag /= unit
        above &= lag > 0.0  # NaN carries no information
        return np.where(above, lag, -np.inf)


def _best_row(at: Standings, eligible: NDArray[np.bool_]) -> Rows:
    """Return, by column, the row of the best trial that stands there, the first among equals; -1 for none."""
    there = (eligible & (at.column >= 0)).nonzero()[0][::-1]
    there = there[at.value[there].argsort(kind="stable")]
    best_row = np.full(GRID_SIZE, -1)
    best_row[at.column[there]] = there  # the last write remains
    return best_row
