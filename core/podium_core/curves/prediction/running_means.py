"""Median of the others' running means at a trial's last step, for the `median_stop` policy.

Formula. mean_j(s): mean of all values of trial j up to step s. A trial i with the last step s is compared with the
median of mean_j(s) over all other trials j that have reached s. Without the trial itself, the median of a column of
means depends only on its four middle values and on the side on which the trial stands.

`RunningMeans` keeps the columns from cycle to cycle. A new point costs one pass over its trial's curve and O(n log n)
for the column of its step, however many other steps there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable
from podium_core.curves.non_finite import diverged
from podium_core.curves.row_cache import RowCache
from podium_core.curves.statistics import Floats, Rows, median_of_others, middle_values
from podium_core.domain.snapshot import Point

_MAX_UNUSED = 64  # columns of unused steps that may accumulate before they are removed


def running_means(curve: Sequence[Point], sign: float, width: int) -> Floats:
    """Return the steps of a curve, padded with infinity to `width`, and then its running means."""
    row = np.full(2 * width, np.inf)
    row[: len(curve)] = [point.step for point in curve]
    # divided by the width: the sum of huge values overflows
    values = [-np.inf if diverged(p.value) else sign * p.value / width for p in curve]
    row[width : width + len(curve)] = np.cumsum(values) / np.arange(1, len(curve) + 1) * width
    return row


def means_of_trial(row: Floats, steps: Floats) -> Floats:
    """Return one trial's running mean at each step; NaN before its first and after its last point."""
    width = len(row) // 2
    points = int(np.count_nonzero(np.isfinite(row[:width])))
    if not points:
        return np.full(len(steps), np.nan)
    shown = np.searchsorted(row[:width], steps, side="right")
    within = (shown > 0) & (steps <= row[points - 1])
    return np.where(within, row[width + np.clip(shown, 1, points) - 1], np.nan)


def means_at_step(table: Floats, last: Floats, step: float) -> Floats:
    """Return all trials' running means at one step; `last` is each trial's last step."""
    width = table.shape[1] // 2
    shown = np.count_nonzero(table[:, :width] <= step, axis=1)
    within = (shown > 0) & (last >= step)
    return np.where(within, table[np.arange(len(table)), width + np.maximum(shown, 1) - 1], np.nan)


def middle_means(means: Floats, peers: int) -> Floats:
    """Return the four middle values of a column of means.

    They are -inf where a trial has fewer than `peers` others.
    """
    there = means[~np.isnan(means)]
    return middle_values(there) if len(there) > peers else np.full(4, -np.inf)


class _Columns(RowCache):
    """One row for each step: the means of all trials there, NaN beyond a trial's last point."""

    means: Floats
    middle: Floats
    version: NDArray[np.intp]  # increases whenever a mean changes

    def __init__(self, trials: int) -> None:
        super().__init__(0, {"means": np.full(trials, np.nan), "middle": np.full(4, -np.inf), "version": 0})


class RunningMeans:
    """Cache of the running means of one curve table."""

    def __init__(self, rows: int) -> None:
        self._steps = np.zeros(0)
        self._trials = RowCache(rows, {})
        self._columns = _Columns(rows)

    def medians(self, curves: CurveTable, judged: Rows, peers: int) -> Floats:
        """Return, for each row in `judged`, the median of the others' means at the same step.

        -inf for all other rows, and where fewer than `peers` others have reached the step.
        """
        table, columns = _table(curves), self._columns
        self._update_columns(curves, table)
        self._ensure_columns(curves, table, np.unique(curves.step[judged]))
        column = np.searchsorted(self._steps, curves.step[judged])
        wanted = np.zeros(len(self._steps), dtype=bool)
        wanted[column] = True
        for index in columns.stale_rows(columns.version, among=wanted).tolist():
            columns.middle[index] = middle_means(columns.means[index], peers)
        medians = np.full(len(curves), -np.inf)
        medians[judged] = median_of_others(columns.means[column, judged], columns.middle[column])
        return medians

    def _update_columns(self, curves: CurveTable, table: Floats) -> None:
        """Update the columns for the curves that changed."""
        columns = self._columns
        for row in self._trials.stale_rows(curves.version).tolist():
            fresh, old = means_of_trial(table[row], self._steps), columns.means[:, row]
            columns.version += (fresh != old) & ~(np.isnan(fresh) & np.isnan(old))
            columns.means[:, row] = fresh

    def _ensure_columns(self, curves: CurveTable, table: Floats, wanted: Floats) -> None:
        """Make columns for all `wanted` steps, and remove unused ones when there are too many."""
        too_many = len(self._steps) > len(wanted) + _MAX_UNUSED
        if not too_many and (_indexes(self._steps, wanted) >= 0).all():
            return
        kept = np.intersect1d(self._steps, wanted) if too_many else self._steps
        steps = np.union1d(kept, wanted)
        source = _indexes(self._steps, steps)
        self._columns.reorder(source.tolist())
        self._steps = steps
        for index in np.flatnonzero(source < 0).tolist():
            self._columns.means[index] = means_at_step(table, curves.step, float(steps[index]))


def _table(curves: CurveTable) -> Floats:
    """Return the `running_means` of all trials, with a width that is enough for the longest curve."""
    width = 16
    while width < curves.points.max(initial=0):
        width *= 2
    return curves.per_curve(("running means", width), 2 * width, lambda curve: running_means(curve, curves.sign, width))


def _indexes(steps: Floats, wanted: Floats) -> Rows:
    """Return the index of each wanted step among the sorted `steps`; -1 where it is missing."""
    if not len(steps):
        return np.full(len(wanted), -1)
    indexes = np.minimum(np.searchsorted(steps, wanted), len(steps) - 1)
    return np.where(steps[indexes] == wanted, indexes, -1)
