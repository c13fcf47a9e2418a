"""Lag of each trial behind less trained trials, at their training. `envelope` uses it.

At its own column, a trial that is alone ahead is the leader and could never be overtaken. So each trial is also
compared with the best of the trials that stand at each lower column, which it has passed itself.

Formula. For a column c let j be the trial with the best value among those that stand at c. The lag of a trial i that
stands above c, in units:
  lag_i(c) = (best_j - best_i + slope (gain_j - gain_i)) / unit(c),  all values at column c
  unit(c) = unit gain_ratio(c)^spread max(gain_i, gain_j, leader_gain(c))
The result is the largest positive lag over all c. `LagsBehindLessTrained` keeps the matrix of lags from cycle to cycle:
a new value costs its own row, and a column whose best trial changes costs that column.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import AlignedCurves
from podium_core.curves.alignment import GRID_SIZE, Standings
from podium_core.curves.row_cache import RowCache
from podium_core.curves.statistics import Floats, Rows
from podium_core.policies.envelope_constants import TINY, Constants

_CELLS = 8192  # cells that are compared at once; larger temporary arrays are slower


def best_rows(at: Standings, eligible: NDArray[np.bool_]) -> Rows:
    """Return j by column: the row of the best trial that stands there.

    Of equal trials it is the first; -1 if no trial stands there.
    """
    there = (eligible & (at.column >= 0)).nonzero()[0][::-1]
    there = there[at.value[there].argsort(kind="stable")]
    result = np.full(GRID_SIZE, -1)
    result[at.column[there]] = there  # the last write remains
    return result


def best_trials(aligned: AlignedCurves, columns: Rows, rows: Rows, constants: Constants) -> Floats:
    """Return four values of the best trials by column, as an array of shape (4, columns).

    They are best_j, gain_j, max(gain_j, leader_gain) and unit gain_ratio^spread. `rows`: j at each of these columns.
    """
    gain, scales = aligned.gain[rows, columns], aligned.columns
    least = np.maximum(gain, scales.leader_gain[columns])
    return np.array(
        [aligned.best[rows, columns], gain, least, constants.unit * scales.gain_ratio[columns] ** constants.spread]
    )


def lags(own: Floats, gain: Floats, best: Floats, above: NDArray[np.bool_], slope: float) -> Floats:
    """Return lag_i(c) of trials with these values and gains, (trials, columns); -inf for none.

    `best`: the `best_trials` of the columns. `above`: whether the trial stands above the column; only then it counts.
    In place for speed: `own`, `gain` and `above` are overwritten.
    """
    best_value, best_gain, least, size = best
    above &= own > -np.inf
    unit = np.maximum(gain, least)
    unit += TINY
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        unit *= size
        lag = np.subtract(best_value, own, out=own)
        difference = np.subtract(best_gain, gain, out=gain)
        difference *= slope
        lag += difference
        lag /= unit
    above &= lag > 0.0  # NaN carries no information
    return np.where(above, lag, -np.inf)


class _Lags(RowCache):
    """Lag of each trial (row) at each column; -inf where it is not above the column, or no trial stands there."""

    lag: Floats

    def __init__(self, rows: int) -> None:
        super().__init__(rows, {"lag": np.full(GRID_SIZE, -np.inf)}, order="F")


class LagsBehindLessTrained:
    """Cache of the lags for one table of aligned curves."""

    def __init__(self, aligned: AlignedCurves, constants: Constants) -> None:
        self._aligned = aligned
        self._constants = constants
        self._rows = _Lags(len(aligned.column))
        self._columns = RowCache(GRID_SIZE, {})

    def largest_lag(self, at: Standings, diverged: NDArray[np.bool_]) -> Floats:
        """Return, by row, the largest lag behind a trial at a lower column that has not diverged.

        -inf where there is no such lag. O(changes x (rows + columns)), and one pass over the matrix.
        """
        aligned, slope, lag = self._aligned, self._constants.slope, self._rows.lag.T
        row = best_rows(at, ~diverged & (at.column < GRID_SIZE - 1))  # no trial is above the last column
        # A column changes with its values and with its best trial.
        changed = self._columns.stale_rows(aligned.column_version * (len(at.column) + 1) + row + 1)
        rows = self._rows.stale_rows(aligned.version)
        columns = (row >= 0).nonzero()[0]
        trials = best_trials(aligned, columns, row[columns], self._constants)
        lag[changed[row[changed] < 0]] = -np.inf
        if len(rows) * len(columns) > _CELLS:
            stale = np.arange(len(columns))
        else:
            stale = np.searchsorted(columns, changed[row[changed] >= 0])
            own, gain = aligned.best[rows].take(columns, axis=1), aligned.gain[rows].take(columns, axis=1)
            lag[columns[:, None], rows] = lags(own, gain, trials, at.column[rows, None] > columns, slope).T
        step = max(1, _CELLS // len(at.column))
        for start in range(0, len(stale), step):
            some = stale[start : start + step]
            there = columns[some]
            own, gain = aligned.best.take(there, axis=1), aligned.gain.take(there, axis=1)
            lag[there] = lags(own, gain, trials[:, some], at.column[:, None] > there, slope).T
        ends = (int(columns[0]), int(columns[-1]) + 1) if len(columns) else (0, GRID_SIZE)  # all others are -inf
        return cast(Floats, lag[slice(*ends)].max(axis=0))


def lags_behind_less_trained(
    aligned: AlignedCurves, at: Standings, diverged: NDArray[np.bool_], constants: Constants
) -> Floats:
    """Return, by row, the largest lag behind a trial at a lower column.

    Diverged trials do not count; -inf if there is no other.
    """
    return aligned.cached(("lags", constants), lambda: LagsBehindLessTrained(aligned, constants)).largest_lag(
        at, diverged
    )
