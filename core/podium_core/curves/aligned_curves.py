"""Curves of all trials of a job, aligned on one grid of training steps.

The `envelope` policy and the predictions call it. A trial that has trained three times as long as another is not better
for that reason; only values at the same step can be compared.

Definitions. H is the horizon (steps of a whole trial) and the grid has 8 steps per doubling: s_c = H 2^(-(79 - c) / 8)
for the columns c = 0 ... 79. With larger values better:
  best[i, c]    best value of trial i up to step s_c, interpolated over log(step) between two evaluations;
                NaN beyond its last evaluation
  gain[i, c]    best[i, c] - best[i, c - 8]: what trial i gained over the last doubling of training
  leader_value[c] = max_i best[i, c];  leader_gain[c] is the gain of that trial
  typical_gain[c]   median gain of the better half of the trials at s_c
  gain_ratio[c]     typical_gain[c] / median deficit of the better half to the leader, from 0.001 to 1000

The job's curve table keeps this table between two cycles. A new point costs the columns that it reaches. Where thinning
dropped points, the columns after the last unchanged point are computed again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable, Floats, RowCache, reorder_rows
from podium_core.curves.non_finite import diverged
from podium_core.curves.thinning import common_prefix
from podium_core.domain.snapshot import Point

PER_DOUBLING = 8
DOUBLINGS = 10
GRID_SIZE = PER_DOUBLING * DOUBLINGS
LEADING_SHARE = 0.5  # Share of the trials that the scales of a column use; trials far behind do not describe the race.
T = TypeVar("T")
_TINY = 1e-12
_FEW = 8  # Up to this many columns, Python floats are faster than numpy calls.


@dataclass(frozen=True, slots=True)
class Standings:
    """Position of each trial (by row) at the highest column that it has reached.

    Larger values are better. All arrays are copies.
    """

    column: NDArray[np.intp]  # -1: no value on the grid yet
    value: Floats
    deficit: Floats  # leader's value at this column minus the trial's value; NaN where unknown
    gain: Floats  # gain over the trial's last doubling of training
    leader_gain: Floats  # gain of the leader at this column
    gain_ratio: Floats  # `gain_ratio` at this column: above 1 the trials still gain more than they differ


class AlignedCurves:
    """Aligned curves of one curve table for one horizon (definitions in the module's docstring)."""

    def __init__(self, rows: int, horizon: float) -> None:
        self.horizon = horizon
        self.grid = horizon * 2.0 ** (-np.arange(GRID_SIZE - 1, -1, -1) / PER_DOUBLING)
        self.grid_list: list[float] = self.grid.tolist()  # the same as a list
        self.best = np.full((rows, GRID_SIZE), np.nan)
        self.gain = np.zeros((rows, GRID_SIZE))
        self.column = np.full(rows, -1)
        self.leader_value = np.full(GRID_SIZE, np.nan)  # NaN where no trial has a finite value
        self.leader_gain = np.zeros(GRID_SIZE)
        self.typical_gain = np.zeros(GRID_SIZE)
        self.gain_ratio = np.ones(GRID_SIZE)
        self.row_version = np.zeros(
            rows, dtype=np.intp
        )  # by row: increases whenever the trial's values on the grid change
        self.column_version = np.zeros(GRID_SIZE, dtype=np.intp)  # by column: how often it was measured
        # results of callers for the present content; cleared whenever the table changes
        self.results: dict[Hashable, Any] = {}
        self._cache: dict[Hashable, Any] = {}
        self._first_cells = np.arange(0, rows * GRID_SIZE, GRID_SIZE)  # flat index of each row's first cell
        self._stale_columns = set(range(GRID_SIZE))  # columns with changed values that were not measured since
        self._seen = np.full(rows, -1)
        self._complete = np.zeros(rows, dtype=bool)
        self._curves: list[Sequence[Point]] = [()] * rows  # curves as last read
        self._best_until: list[list[float]] = [
            [] for _ in range(rows)
        ]  # by point: best value so far at a positive step

    def reorder(self, source: Sequence[int]) -> None:
        """Reorder the rows as `RowCache` describes."""
        if len(set(source) - {-1}) < len(self._curves):  # a trial was removed: leaders and scales may change
            self._stale_columns.update(range(GRID_SIZE))
        self.best, self.gain = reorder_rows(self.best, source, np.nan), reorder_rows(self.gain, source, 0.0)
        self.column, self._seen = reorder_rows(self.column, source, -1), reorder_rows(self._seen, source, -1)
        self.row_version = reorder_rows(self.row_version, source, 0)
        self._first_cells = np.arange(0, len(source) * GRID_SIZE, GRID_SIZE)
        self.results.clear()
        self._cache = {key: kept for key, kept in self._cache.items() if isinstance(kept, RowCache)}
        for other in self._cache.values():
            other.reorder(source)
        self._complete = reorder_rows(self._complete, source, 0)
        self._curves = [() if row < 0 else self._curves[row] for row in source]
        self._best_until = [[] if row < 0 else self._best_until[row] for row in source]

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the object cached under `key`, made by `make` where there is none.

        It lives as long as this table. A `RowCache` is reordered with the rows; any other object is made again.
        """
        if key not in self._cache:
            self._cache[key] = make()
        found: T = self._cache[key]
        return found

    def refresh(self, table: CurveTable) -> None:
        """Read the curves that changed and measure the columns at which a trial stands. O(changes)."""
        for row in ((self._seen != table.version) | (self._complete != table.complete)).nonzero()[0].tolist():
            self._read(row, table)
        self._seen[:] = table.version
        self._complete[:] = table.complete
        standing = np.bincount(self.column + 1, minlength=GRID_SIZE + 1)[1:]
        for column in self._stale_columns.intersection(standing.nonzero()[0].tolist()):
            self.measure_column(column)

    def standings(self) -> Standings:
        column = self.column.copy()
        cell = self._first_cells + np.maximum(column, 0)  # one flat index is several times faster than two indices
        value, gain = self.best.reshape(-1).take(cell), self.gain.reshape(-1).take(cell)
        with np.errstate(over="ignore", invalid="ignore"):
            deficit = self.leader_value.take(column) - value
        deficit[column < 0] = np.nan
        return Standings(column, value, deficit, gain, self.leader_gain.take(column), self.gain_ratio.take(column))

    def _read(self, row: int, table: CurveTable) -> None:
        """Read a changed curve, starting at the last point that is unchanged since the last call."""
        curve, sign, complete = table.curves[row] or (), table.sign, bool(table.complete[row])
        kept, tops = common_prefix(self._curves[row], curve), self._best_until[row]
        self._curves[row] = curve
        del tops[kept:]
        top = tops[-1] if tops else -math.inf
        for point in curve[kept:]:
            if point.step > 0.0 and not diverged(point.value):
                top = max(top, sign * point.value)
            tops.append(top)
        if kept and curve[kept - 1].step > 0.0 and not complete and not self._complete[row]:
            self._extend(row, curve[kept - 1 :], sign, tops[kept - 1])
            return
        self._mark_changed(row)
        best = running_best(curve, sign, self.grid)
        if complete and curve:  # A completed trial reports nothing more: its best value holds at every later step.
            best[self.grid > curve[-1].step] = table.best[row]
        old, gain = self.best[row], gains(best)
        changed = (best != old) & ~(np.isnan(best) & np.isnan(old))
        # Thinning may keep a value and drop the one before it, which changes the gain.
        changed |= gain != self.gain[row]
        self._stale_columns.update(changed.nonzero()[0].tolist())
        reached = np.flatnonzero(~np.isnan(best))
        self.best[row] = best
        self.gain[row] = gain
        self.column[row] = reached[-1] if len(reached) else -1

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
        self._mark_changed(row)
        self._stale_columns.update(range(first, max(end, left)))
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

    def _mark_changed(self, row: int) -> None:
        self.row_version[row] += 1
        self.results.clear()

    def measure_column(self, column: int) -> None:
        """Compute the leader and the scales of one column from all trials that reached it. O(n log n)."""
        self._stale_columns.discard(column)
        self.column_version[column] += 1
        best = self.best[:, column]
        there = (best > -np.inf).nonzero()[0]
        if not len(there):
            self.leader_value[column] = np.nan
            self.leader_gain[column] = self.typical_gain[column] = 0.0
            self.gain_ratio[column] = 1.0
            return
        values, column_gains = best[there], self.gain[there, column]
        order = (-values).argsort(kind="stable")
        half = min(len(there), max(2, int(LEADING_SHARE * len(there))))
        top = values[order[: half + 1]].tolist()
        lead = top[0]
        # median deficit, which may overflow to infinity
        low, high = lead - top[(len(top) - 1) // 2], lead - top[len(top) // 2]
        deficit = low if low == high else low / 2 + high / 2
        gain = max(0.0, median(column_gains[order[:half]]))
        self.leader_value[column] = lead
        self.leader_gain[column] = max(0.0, column_gains[order[0]])
        self.typical_gain[column] = gain
        self.gain_ratio[column] = min(1e3, max(1e-3, (gain + _TINY) / (deficit + _TINY)))


def align(curves: CurveTable, horizon: float) -> AlignedCurves:
    """Return the aligned curves of this table for trials of `horizon` steps, brought up to date."""
    aligned = curves.cached(("aligned curves", horizon), lambda: AlignedCurves(len(curves), horizon))
    aligned.refresh(curves)
    return aligned


def median(values: Floats) -> float:
    """Return the median of at least one value; much faster than numpy's for short arrays."""
    ordered = values.copy()
    ordered.sort()
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else float(ordered[half - 1] / 2 + ordered[half] / 2)


def running_best(curve: Sequence[Point], sign: float, grid: Floats, top: float = -np.inf) -> Floats:
    """Return the best value so far at each step of the grid that lies within the curve.

    NaN outside the curve, -inf before its first finite value. `top` is the best value before this piece of a curve.
    O(points + grid steps).
    """
    found = np.full(len(grid), np.nan)
    kept = [(p.step, -np.inf if diverged(p.value) else sign * p.value) for p in curve if p.step > 0.0]
    if not kept:
        return found
    steps = np.array([step for step, _ in kept])
    best = np.maximum.accumulate([max(top, value) for _, value in kept])
    within = (grid >= steps[0] * (1 - 1e-9)) & (grid <= steps[-1] * (1 + 1e-9))
    inside = grid[within]
    at = np.clip(np.searchsorted(steps, inside * (1 + 1e-9), side="right") - 1, 0, len(steps) - 1)
    following = np.minimum(at + 1, len(steps) - 1)
    low, high = best[at], best[following]
    moving = (low > -np.inf) & (high > low)
    part = np.log(inside[moving] / steps[at[moving]]) / np.log(steps[following[moving]] / steps[at[moving]])
    value = low.copy()
    # Scale both ends separately: the difference of two huge values overflows.
    part = np.clip(part, 0.0, 1.0)
    value[moving] = low[moving] * (1.0 - part) + high[moving] * part
    found[within] = value
    return found


def interpolate_best(before: Point, after: Point, sign: float, step: float, top: float) -> float:
    """Return what `running_best` gives at one step between two points, to the last bit.

    Uses Python floats because a numpy call costs more than one number. `before.step` must be positive.
    """
    first, second = (-math.inf if diverged(point.value) else sign * point.value for point in (before, after))
    low = max(top, first)
    high = max(low, second)
    if after.step <= step * (1 + 1e-9):
        return high
    if not low > -math.inf or not high > low:
        return low
    # numpy's logarithm: Python's may differ in the last bit.
    part = float(np.log(step / before.step) / np.log(after.step / before.step))
    part = min(max(part, 0.0), 1.0)
    return low * (1.0 - part) + high * part


def last_gain(best: Sequence[float]) -> float:
    """Return the last entry of `gains` for at most one doubling of values, to the last bit."""
    last = len(best) - 1
    start = next((i for i, value in enumerate(best) if value > -math.inf), last)
    if start == last:
        return 0.0
    gained = (best[last] - best[start]) * (PER_DOUBLING / (last - start))
    return gained if math.isfinite(gained) else 0.0


def gains(best: Floats) -> Floats:
    """Return the gain over the doubling that ends at each column.

    Where less than a doubling is known, the known part is scaled up. 0 where no gain is known.
    """
    found = np.zeros(len(best))
    known = np.flatnonzero(best > -np.inf)
    if not len(known):
        return found
    start = np.maximum(known - PER_DOUBLING, known[0])
    span = known - start
    scale = PER_DOUBLING / np.maximum(span, 1)
    with np.errstate(over="ignore"):
        gained = (best[known] - best[start]) * scale
    found[known] = np.where((span > 0) & np.isfinite(gained), gained, 0.0)
    return found
