"""The median rule's arithmetic: running means of all trials at the steps where somebody is judged, and what the others'
median is there.

Called by the `median_stop` policy. Kept on the job's board: a new point costs its trial's curve once, and the column of
the step that it reaches, O(n log n), whatever the number of steps at which other trials stand.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import Board, Floats
from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Point

_SPARE = 64  # columns that nobody is judged at any more before they are thrown away


class RunningMeans:
    """Of one board. `means[row, column]` is the mean of the values up to `steps[column]`, nan where the trial has not
    come as far; a column is stale when one of its means has changed since its medians were taken.
    """

    def __init__(self, rows: int) -> None:
        self._steps = np.zeros(0)
        self._means = np.zeros((rows, 0))
        self._stale = np.zeros(0, dtype=bool)
        self._read = np.full(rows, -1)  # version of the curve that the means are of
        self._median = np.full(rows, -np.inf)
        self._taken_at = np.full(rows, np.nan)  # the step that a row's median belongs to

    def medians(self, board: Board, judged: NDArray[np.intp], peers: int) -> Floats:
        """By row: for those in `judged` the median of all the others that have come to the same step; -inf for the rest
        and where fewer than `peers` others have.
        """
        table = self._table(board)
        self._refresh(board, table)
        self._cover(board, table, np.unique(board.step[judged]))
        column = np.searchsorted(self._steps, board.step[judged])
        due = self._stale[column] | (self._taken_at[judged] != board.step[judged])
        for place in np.unique(column[due]).tolist():
            self._judge(place, judged[column == place], peers)
        found = np.full(len(board), -np.inf)
        found[judged] = self._median[judged]
        return found

    def _table(self, board: Board) -> Floats:
        """By row: steps, padded with infinity, and running means."""
        width = 16
        while width < board.points.max(initial=0):
            width *= 2

        def read(curve: tuple[Point, ...]) -> Floats:
            row = np.full(2 * width, np.inf)
            row[: len(curve)] = [point.step for point in curve]
            # a part of each: the sum of huge values overflows
            values = [-np.inf if diverged(p.value) else board.sign * p.value / width for p in curve]
            row[width : width + len(curve)] = np.cumsum(values) / np.arange(1, len(curve) + 1) * width
            return row

        return board.derive(("running means", width), 2 * width, read)

    def _refresh(self, board: Board, table: Floats) -> None:
        """The columns of the curves that have changed."""
        for row in np.flatnonzero(self._read != board.version).tolist():
            fresh = _along(table[row], self._steps)
            old = self._means[row]
            self._stale |= (fresh != old) & ~(np.isnan(fresh) & np.isnan(old))
            self._means[row] = fresh
        self._read[:] = board.version

    def _cover(self, board: Board, table: Floats, wanted: Floats) -> None:
        """Columns for all `wanted` steps, and few others."""
        if len(self._steps) <= len(wanted) + _SPARE and (_places(self._steps, wanted) >= 0).all():
            return
        kept = self._steps if len(self._steps) <= len(wanted) + _SPARE else np.intersect1d(self._steps, wanted)
        steps = np.union1d(kept, wanted)
        old = np.isin(steps, self._steps)
        source = np.searchsorted(self._steps, steps[old])
        means, stale = np.empty((len(board), len(steps))), np.ones(len(steps), dtype=bool)
        means[:, old], stale[old] = self._means[:, source], self._stale[source]
        for place in np.flatnonzero(~old).tolist():
            means[:, place] = _across(table, board.step, float(steps[place]))
        self._steps, self._means, self._stale = steps, means, stale

    def _judge(self, column: int, mine: NDArray[np.intp], peers: int) -> None:
        self._stale[column] = False
        self._taken_at[self._taken_at == self._steps[column]] = np.nan
        rows = np.flatnonzero(~np.isnan(self._means[:, column]))
        self._taken_at[mine] = self._steps[column]
        self._median[mine] = -np.inf
        if len(rows) > peers:
            self._median[mine] = medians_without(self._means[rows, column], np.searchsorted(rows, mine))


def _places(steps: Floats, wanted: Floats) -> NDArray[np.intp]:
    """Of each wanted step among the sorted `steps`; -1 where it is not there."""
    if not len(steps):
        return np.full(len(wanted), -1)
    found = np.minimum(np.searchsorted(steps, wanted), len(steps) - 1)
    return np.where(steps[found] == wanted, found, -1)


def _along(row: Floats, steps: Floats) -> Floats:
    """Of one trial at each step: the mean of its values until then; nan before its first point and after its last."""
    width = len(row) // 2
    points = int(np.count_nonzero(np.isfinite(row[:width])))
    if not points:
        return np.full(len(steps), np.nan)
    shown = np.searchsorted(row[:width], steps, side="right")
    within = (shown > 0) & (steps <= row[points - 1])
    return np.where(within, row[width + np.clip(shown, 1, points) - 1], np.nan)


def _across(table: Floats, last: Floats, step: float) -> Floats:
    """The same of all trials at one step; `last`: the step of each trial's last point."""
    width = table.shape[1] // 2
    shown = np.count_nonzero(table[:, :width] <= step, axis=1)
    within = (shown > 0) & (last >= step)
    return np.where(within, table[np.arange(len(table)), width + np.maximum(shown, 1) - 1], np.nan)


def medians_without(values: Floats, left_out: NDArray[np.intp]) -> Floats:
    """For each index in `left_out` the median of all the other values, of which there is one at least. O(n log n)."""
    order = np.argsort(values, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    ordered, own, rest = values[order], place[left_out], len(values) - 1
    low, high = (rest - 1) // 2, rest // 2
    # a place behind the one left out has moved up by one; halved first, since the sum of two huge values overflows
    found: Floats = ordered[low + (low >= own)] / 2 + ordered[high + (high >= own)] / 2
    return found
