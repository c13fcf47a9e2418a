"""Running means of all trials, and the median of the others' means, for the `median_stop` policy.

The job's curve table keeps them. A new point costs one pass over its trial's curve and O(n log n) for the column of its
step, however many other steps there are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable, Floats
from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Point

_MAX_UNUSED = 64  # columns of unused steps that may accumulate before they are removed


class RunningMeans:
    """Running means of one curve table.

    `_means[row, column]` is the mean of the trial's values up to `_steps[column]`, NaN beyond its last point. A column
    is stale when one of its means changed since its medians were computed.
    """

    def __init__(self, rows: int) -> None:
        self._steps = np.zeros(0)
        self._means = np.zeros((rows, 0))
        self._stale = np.zeros(0, dtype=bool)
        self._version = np.full(rows, -1)  # curve version that the means are computed from
        self._median = np.full(rows, -np.inf)
        self._median_step = np.full(rows, np.nan)  # step of each row's median

    def medians(self, curves: CurveTable, judged: NDArray[np.intp], peers: int) -> Floats:
        """Return, for each row in `judged`, the median of the others' means at the same step.

        -inf for all other rows, and where fewer than `peers` others have reached the step.
        """
        table = self._table(curves)
        self._update_columns(curves, table)
        self._ensure_columns(curves, table, np.unique(curves.step[judged]))
        column = np.searchsorted(self._steps, curves.step[judged])
        due = self._stale[column] | (self._median_step[judged] != curves.step[judged])
        for index in np.unique(column[due]).tolist():
            self._compute_medians(index, judged[column == index], peers)
        found = np.full(len(curves), -np.inf)
        found[judged] = self._median[judged]
        return found

    def _table(self, curves: CurveTable) -> Floats:
        """Return steps (padded with infinity) and running means of each row."""
        width = 16
        while width < curves.points.max(initial=0):
            width *= 2

        def read(curve: tuple[Point, ...]) -> Floats:
            row = np.full(2 * width, np.inf)
            row[: len(curve)] = [point.step for point in curve]
            # divided by the width: the sum of huge values overflows
            values = [-np.inf if diverged(p.value) else curves.sign * p.value / width for p in curve]
            row[width : width + len(curve)] = np.cumsum(values) / np.arange(1, len(curve) + 1) * width
            return row

        return curves.per_curve(("running means", width), 2 * width, read)

    def _update_columns(self, curves: CurveTable, table: Floats) -> None:
        """Update the columns for the curves that changed."""
        for row in np.flatnonzero(self._version != curves.version).tolist():
            fresh = _means_of_trial(table[row], self._steps)
            old = self._means[row]
            self._stale |= (fresh != old) & ~(np.isnan(fresh) & np.isnan(old))
            self._means[row] = fresh
        self._version[:] = curves.version

    def _ensure_columns(self, curves: CurveTable, table: Floats, wanted: Floats) -> None:
        """Make columns for all `wanted` steps, and remove unused ones when there are too many."""
        if len(self._steps) <= len(wanted) + _MAX_UNUSED and (_indexes(self._steps, wanted) >= 0).all():
            return
        kept = self._steps if len(self._steps) <= len(wanted) + _MAX_UNUSED else np.intersect1d(self._steps, wanted)
        steps = np.union1d(kept, wanted)
        old = np.isin(steps, self._steps)
        source = np.searchsorted(self._steps, steps[old])
        means, stale = np.empty((len(curves), len(steps))), np.ones(len(steps), dtype=bool)
        means[:, old], stale[old] = self._means[:, source], self._stale[source]
        for index in np.flatnonzero(~old).tolist():
            means[:, index] = _means_at_step(table, curves.step, float(steps[index]))
        self._steps, self._means, self._stale = steps, means, stale

    def _compute_medians(self, column: int, rows_here: NDArray[np.intp], peers: int) -> None:
        self._stale[column] = False
        self._median_step[self._median_step == self._steps[column]] = np.nan
        rows = np.flatnonzero(~np.isnan(self._means[:, column]))
        self._median_step[rows_here] = self._steps[column]
        self._median[rows_here] = -np.inf
        if len(rows) > peers:
            self._median[rows_here] = leave_one_out_medians(self._means[rows, column], np.searchsorted(rows, rows_here))


def _indexes(steps: Floats, wanted: Floats) -> NDArray[np.intp]:
    """Return the index of each wanted step among the sorted `steps`; -1 where it is missing."""
    if not len(steps):
        return np.full(len(wanted), -1)
    found = np.minimum(np.searchsorted(steps, wanted), len(steps) - 1)
    return np.where(steps[found] == wanted, found, -1)


def _means_of_trial(row: Floats, steps: Floats) -> Floats:
    """Return one trial's running mean at each step; NaN before its first and after its last point."""
    width = len(row) // 2
    points = int(np.count_nonzero(np.isfinite(row[:width])))
    if not points:
        return np.full(len(steps), np.nan)
    shown = np.searchsorted(row[:width], steps, side="right")
    within = (shown > 0) & (steps <= row[points - 1])
    return np.where(within, row[width + np.clip(shown, 1, points) - 1], np.nan)


def _means_at_step(table: Floats, last: Floats, step: float) -> Floats:
    """Return all trials' running means at one step; `last` is each trial's last step."""
    width = table.shape[1] // 2
    shown = np.count_nonzero(table[:, :width] <= step, axis=1)
    within = (shown > 0) & (last >= step)
    return np.where(within, table[np.arange(len(table)), width + np.maximum(shown, 1) - 1], np.nan)


def leave_one_out_medians(values: Floats, left_out: NDArray[np.intp]) -> Floats:
    """Return, for each index in `left_out`, the median of all other values. O(n log n).

    At least one other value must exist.
    """
    order = np.argsort(values, kind="stable")
    index = np.empty_like(order)
    index[order] = np.arange(len(order))
    ordered, left_out_index, rest = values[order], index[left_out], len(values) - 1
    low, high = (rest - 1) // 2, rest // 2
    # Indexes behind the one left out move up by one. Halve first: the sum of two huge values overflows.
    found: Floats = ordered[low + (low >= left_out_index)] / 2 + ordered[high + (high >= left_out_index)] / 2
    return found
