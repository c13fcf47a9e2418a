"""Curves of all trials of a job at equal training, kept from cycle to cycle (formulas: `alignment.py`).

The `envelope` policy and the predictions call it. A new point costs the columns that it reaches. Where thinning dropped
points, the columns after the last unchanged point are computed again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.alignment import (
    GRID_SIZE,
    PER_DOUBLING,
    ColumnScales,
    Standings,
    best_on_grid,
    column_scales,
    gains,
    grid_steps,
    interpolate_best,
    last_gain,
    running_best,
    standings,
)
from podium_core.curves.curve_table import CurveTable
from podium_core.curves.row_cache import RowCache
from podium_core.curves.statistics import Floats, Rows, kendall_tau
from podium_core.curves.thinning import common_prefix
from podium_core.domain.snapshot import Point

_FEW = 8  # Up to this many columns, Python floats are faster than numpy calls.


class Columns(RowCache):
    """Scales of the columns of a grid: one row for each column."""

    leader_value: Floats
    leader_gain: Floats
    typical_gain: Floats
    gain_ratio: Floats

    def __init__(self) -> None:
        super().__init__(GRID_SIZE, ColumnScales()._asdict())

    def store(self, column: int, scales: ColumnScales) -> None:
        self.leader_value[column], self.leader_gain[column] = scales.leader_value, scales.leader_gain
        self.typical_gain[column], self.gain_ratio[column] = scales.typical_gain, scales.gain_ratio


class AlignedCurves(RowCache):
    """Aligned curves of one curve table for one horizon."""

    best: Floats
    gain: Floats
    column: NDArray[np.intp]  # highest column that the trial has reached; -1 for none
    version: NDArray[np.intp]  # increases whenever the trial's values on the grid change
    _complete: NDArray[np.bool_]  # as last read; so is `_curves`
    _curves: list[Sequence[Point]]

    def __init__(self, rows: int, horizon: float) -> None:
        empty: dict[str, Any] = {
            "best": np.full(GRID_SIZE, np.nan),
            "gain": np.zeros(GRID_SIZE),
            "column": -1,
            "version": 0,
            "_complete": False,
            "_curves": (),
        }
        super().__init__(rows, empty)
        self.horizon = horizon
        self.grid = grid_steps(horizon)
        self.grid_list: list[float] = self.grid.tolist()  # the same as a list
        self.columns = Columns()
        self.column_version = np.zeros(GRID_SIZE, dtype=np.intp)  # increases whenever a value of the column changes

    def reorder(self, source: Sequence[int]) -> None:
        if not self.only_added(source):  # a trial was removed: leaders and scales may change
            self.column_version += 1
        super().reorder(source)

    def refresh(self, table: CurveTable) -> None:
        """Read the curves that changed and measure the columns at which a trial stands. O(changes)."""
        for row in self.stale_rows(table.version).tolist():
            self._read(row, table)
        self.measure(np.bincount(self.column + 1, minlength=GRID_SIZE + 1)[1:] > 0)

    def measure(self, wanted: NDArray[np.bool_]) -> None:
        """Bring the scales of the wanted columns up to date. O(n log n) for each that changed."""
        for column in self.columns.stale_rows(self.column_version, among=wanted).tolist():
            self.columns.store(column, column_scales(self.best[:, column], self.gain[:, column]))

    def standings(self) -> Standings:
        columns = self.columns
        scales = (columns.leader_value, columns.leader_gain, columns.gain_ratio)
        return standings(self.best, self.gain, self.column, scales)

    def _read(self, row: int, table: CurveTable) -> None:
        """Read a changed curve, starting at the last point that is unchanged since the last call."""
        curve, old, complete = table.curves[row] or (), self._curves[row], bool(table.complete[row])
        kept = common_prefix(old, curve)
        extends = kept and curve[kept - 1].step > 0.0 and not complete and not self._complete[row]
        self._curves[row], self._complete[row] = curve, complete
        if extends:
            self._extend(row, curve[kept - 1 :], table.sign, table.trained_best(row, kept))
            return
        best = best_on_grid(curve, table.sign, self.grid, float(table.best[row]) if complete else None)
        gain = gains(best)
        changed = (best != self.best[row]) & ~(np.isnan(best) & np.isnan(self.best[row]))
        # Thinning may keep a value and drop the one before it, which changes the gain.
        self.column_version += changed | (gain != self.gain[row])
        self.version[row] += 1
        reached = np.flatnonzero(~np.isnan(best))
        self.best[row], self.gain[row], self.column[row] = best, gain, reached[-1] if len(reached) else -1

    def _extend(self, row: int, curve: Sequence[Point], sign: float, top: float) -> None:
        """Update the columns that the newest points reach; earlier columns do not change.

        `curve` begins with the last unchanged point; `top` is the best value up to it.
        """
        first = bisect_left(self.grid_list, curve[0].step * (1 - 1e-9))
        end = bisect_right(self.grid_list, curve[-1].step * (1 + 1e-9))
        left = int(self.column[row]) + 1  # greater than `end` where the curve became shorter
        if first >= end >= left:
            return
        few, best = end - first <= _FEW, self.best[row]
        if few and len(curve) == 2:  # the usual case
            values = [interpolate_best(curve[0], curve[1], sign, step, top) for step in self.grid_list[first:end]]
        else:
            values = running_best(curve, sign, self.grid[first:end], top).tolist()
        if left == end and values == best[first:end].tolist():  # The dropped points carried no information.
            return
        self.version[row] += 1
        self.column_version[first : max(end, left)] += 1
        best[first:end] = values
        best[end:left] = np.nan
        self.gain[row, end:left] = 0.0
        self.column[row] = end - 1 if end and not np.isnan(best[end - 1]) else -1
        start = max(0, first - PER_DOUBLING)
        if few:
            known = best[start:end].tolist()
            gained = [last_gain(known[max(0, at - PER_DOUBLING) : at + 1]) for at in range(first - start, end - start)]
            self.gain[row, first:end] = gained
        else:
            self.gain[row, first:end] = gains(best[start:end])[first - start :]


def align(curves: CurveTable, horizon: float) -> AlignedCurves:
    """Return the aligned curves of this table for trials of `horizon` steps, brought up to date."""
    aligned = curves.cached(("aligned curves", horizon), lambda: AlignedCurves(len(curves), horizon))
    aligned.refresh(curves)
    return aligned


def order_persistence(aligned: AlignedCurves, curves: CurveTable, completed: Rows, share: float) -> float:
    """Return Kendall's tau of the order of the completed trials.

    It compares their order at a share of training with the order at their ends.
    """
    column = min(GRID_SIZE - 1, bisect_left(aligned.grid_list, share * aligned.horizon))

    def compute() -> float:
        early, late = aligned.best[completed, column], curves.best[completed]
        finite = np.isfinite(early) & np.isfinite(late)
        return kendall_tau(early[finite], late[finite])

    content = (column, completed.tobytes(), curves.version[completed].tobytes())
    return aligned.remembered("order persistence", content, compute)
