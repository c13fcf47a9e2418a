"""All trials of a job held against each other at equal training: the best value of each at rungs of a geometric grid.

Called by the `envelope` policy and for predictions. A trial that has trained three times as long as another is not
better for that: what can be compared is what both had at the same step. The grid has 8 rungs a doubling below the
horizon; between two evaluations the running best is interpolated over the logarithm of the step, so that trials that
report at different steps can be compared, and nothing is read beyond a trial's own last evaluation. Kept on the job's
board: a new point costs the columns that it reaches; where thinning drops points, those from the last point before.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import Board, Floats, Movable, moved
from podium_core.curves.non_finite import diverged
from podium_core.curves.thinning import same_until
from podium_core.domain.snapshot import Point

PER_DOUBLING = 8
DOUBLINGS = 10
RUNGS = PER_DOUBLING * DOUBLINGS
TOP = 0.5  # the part of a column that its scales are taken from: who is far behind tells nothing of the race
T = TypeVar("T")
_TINY = 1e-12
_FEW = 8  # rungs: numpy's calls cost more than so many numbers


@dataclass(frozen=True, slots=True)
class Standings:
    """By row, each at the highest rung that the trial has reached. Larger values are better. Copies: they stay."""

    rung: NDArray[np.intp]  # -1: nothing on the grid yet
    value: Floats
    deficit: Floats  # the best of all at this rung less its value; nan where unknown
    gain: Floats  # what it has gained over its last doubling of training
    leader_gain: Floats  # the same of who leads at this rung
    ratio: Floats  # median gain / median deficit of the better half at this rung: above 1 everything still moves


class EqualTraining:
    """The table of one board for one horizon: `best[row, rung]`, nan where a trial has not come, and its gains."""

    def __init__(self, rows: int, horizon: float) -> None:
        self.horizon = horizon
        self.grid = horizon * 2.0 ** (-np.arange(RUNGS - 1, -1, -1) / PER_DOUBLING)
        self.rungs: list[float] = self.grid.tolist()  # the same
        self.best = np.full((rows, RUNGS), np.nan)
        self.gain = np.zeros((rows, RUNGS))
        self.rung = np.full(rows, -1)
        self.lead = np.full(RUNGS, np.nan)  # by rung: the best value of all
        self.lead_gain = np.zeros(RUNGS)
        self.typical = np.zeros(RUNGS)  # median gain of the better half
        self.ratio = np.ones(RUNGS)
        self.content = np.zeros(rows, dtype=np.intp)  # by row: changes whenever its values on the grid do
        self.measured = np.zeros(RUNGS, dtype=np.intp)  # by rung: how often, so that others see what may have changed
        self.derived: dict[Hashable, Any] = {}  # what others made of this table; empty again whenever it changes
        self._kept: dict[Hashable, Any] = {}
        self._first_cells = np.arange(0, rows * RUNGS, RUNGS)  # of each row, in an array of all rows and rungs
        self._stale = set(range(RUNGS))  # rungs that somebody's values there have changed since they were measured
        self._seen = np.full(rows, -1)
        self._complete = np.zeros(rows, dtype=bool)
        self._curves: list[Sequence[Point]] = [()] * rows  # as they were read last
        self._tops: list[list[float]] = [[] for _ in range(rows)]  # by point: the best value of a positive step so far

    def move(self, source: Sequence[int]) -> None:
        """The board's rows are others from now on (`Movable`)."""
        if len(set(source) - {-1}) < len(self._curves):  # somebody is gone: scales and leaders may be others
            self._stale.update(range(RUNGS))
        self.best, self.gain = moved(self.best, source, np.nan), moved(self.gain, source, 0.0)
        self.rung, self._seen = moved(self.rung, source, -1), moved(self._seen, source, -1)
        self.content = moved(self.content, source, 0)
        self._first_cells = np.arange(0, len(source) * RUNGS, RUNGS)
        self.derived.clear()
        self._kept = {key: kept for key, kept in self._kept.items() if isinstance(kept, Movable)}
        for other in self._kept.values():
            other.move(source)
        self._complete = moved(self._complete, source, 0)
        self._curves = [() if row < 0 else self._curves[row] for row in source]
        self._tops = [[] if row < 0 else self._tops[row] for row in source]

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """An object of the caller's that lives as long as this table and moves with its rows, or is made anew where it
        cannot (`Movable`).
        """
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def refresh(self, board: Board) -> None:
        """Reads the curves that have changed, and measures the rungs on which somebody stands. O(changes)."""
        for row in ((self._seen != board.version) | (self._complete != board.complete)).nonzero()[0].tolist():
            self._read(row, board)
        self._seen[:] = board.version
        self._complete[:] = board.complete
        standing = np.bincount(self.rung + 1, minlength=RUNGS + 1)[1:]
        for column in self._stale.intersection(standing.nonzero()[0].tolist()):
            self.measure(column)

    def standings(self) -> Standings:
        rung = self.rung.copy()
        cell = self._first_cells + np.maximum(rung, 0)  # several times faster than two indices
        value, gain = self.best.reshape(-1).take(cell), self.gain.reshape(-1).take(cell)
        with np.errstate(over="ignore", invalid="ignore"):
            deficit = self.lead.take(rung) - value
        deficit[rung < 0] = np.nan
        return Standings(rung, value, deficit, gain, self.lead_gain.take(rung), self.ratio.take(rung))

    def _read(self, row: int, board: Board) -> None:
        """Goes on from the last point that was read before and is still there."""
        curve, sign, complete = board.curves[row] or (), board.sign, bool(board.complete[row])
        kept, tops = same_until(self._curves[row], curve), self._tops[row]
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
        self._changes(row)
        best = running_best(curve, sign, self.grid)
        if complete and curve:  # nothing more is to come of it: its last best is its best at any later step
            best[self.grid > curve[-1].step] = board.best[row]
        old, gain = self.best[row], gains(best)
        changed = (best != old) & ~(np.isnan(best) & np.isnan(old))
        changed |= gain != self.gain[row]  # of a thinned curve a value may stay while the one before it goes
        self._stale.update(changed.nonzero()[0].tolist())
        reached = np.flatnonzero(~np.isnan(best))
        self.best[row] = best
        self.gain[row] = gain
        self.rung[row] = reached[-1] if len(reached) else -1

    def _extend(self, row: int, curve: Sequence[Point], sign: float, top: float) -> None:
        """The rungs that the last points have reached; nothing changes on those before. `curve` begins with the last
        point that was read before and is still there; `top`: the best value until then.
        """
        first = bisect_left(self.rungs, curve[0].step * (1 - 1e-9))
        end = bisect_right(self.rungs, curve[-1].step * (1 + 1e-9))
        left = int(self.rung[row]) + 1  # above `end` where the curve was cut back
        if first >= end >= left:
            return
        few, best = end - first <= _FEW, self.best[row]
        if few and len(curve) == 2:  # most of the time
            values = [best_between(curve[0], curve[1], sign, rung, top) for rung in self.rungs[first:end]]
        else:
            values = running_best(curve, sign, self.grid[first:end], top).tolist()
        if left == end and values == best[first:end].tolist():  # points that went had told nothing else
            return
        self._changes(row)
        self._stale.update(range(first, max(end, left)))
        best[first:end] = values
        best[end:left] = np.nan
        self.gain[row, end:left] = 0.0
        self.rung[row] = end - 1 if end and not np.isnan(best[end - 1]) else -1
        start = max(0, first - PER_DOUBLING)
        if few:
            known = best[start:end].tolist()
            gained = [last_gain(known[max(0, at - PER_DOUBLING) : at + 1]) for at in range(first - start, end - start)]
            self.gain[row, first:end] = gained
        else:
            self.gain[row, first:end] = gains(best[start:end])[first - start :]

    def _changes(self, row: int) -> None:
        self.content[row] += 1
        self.derived.clear()

    def measure(self, column: int) -> None:
        """Leader and scales of one rung, from all trials that have come so far. O(n log n)."""
        self._stale.discard(column)
        self.measured[column] += 1
        best = self.best[:, column]
        there = (best > -np.inf).nonzero()[0]
        if not len(there):
            self.lead[column] = np.nan
            self.lead_gain[column] = self.typical[column] = 0.0
            self.ratio[column] = 1.0
            return
        values, moved = best[there], self.gain[there, column]
        order = (-values).argsort(kind="stable")
        half = min(len(there), max(2, int(TOP * len(there))))
        top = values[order[: half + 1]].tolist()
        lead = top[0]
        # the median deficit; of two huge values it is infinite, which is large enough
        low, high = lead - top[(len(top) - 1) // 2], lead - top[len(top) // 2]
        deficit = low if low == high else low / 2 + high / 2
        gain = max(0.0, middle(moved[order[:half]]))
        self.lead[column] = lead
        self.lead_gain[column] = max(0.0, moved[order[0]])
        self.typical[column] = gain
        self.ratio[column] = min(1e3, max(1e-3, (gain + _TINY) / (deficit + _TINY)))


def equal_training(board: Board, horizon: float) -> EqualTraining:
    """The table of this board for trials of `horizon` steps, brought up to date."""
    table = board.keep(("equal training", horizon), lambda: EqualTraining(len(board), horizon))
    table.refresh(board)
    return table


def middle(values: Floats) -> float:
    """The median of at least one value; many times faster than numpy's for short arrays."""
    ordered = values.copy()
    ordered.sort()
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else float(ordered[half - 1] / 2 + ordered[half] / 2)


def running_best(curve: Sequence[Point], sign: float, grid: Floats, top: float = -np.inf) -> Floats:
    """The best value so far at each step of the grid that lies within the curve, nan elsewhere; -inf before the first
    finite value. `top`: the best before this piece of a curve. O(points + rungs).
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
    # each end scaled by itself: the difference of two huge values overflows
    part = np.clip(part, 0.0, 1.0)
    value[moving] = low[moving] * (1.0 - part) + high[moving] * part
    found[within] = value
    return found


def best_between(before: Point, after: Point, sign: float, step: float, top: float) -> float:
    """`running_best` of two points at one step between them, to the bit; in Python's floats, since numpy's calls cost
    more than one number. `before.step` is positive.
    """
    first, second = (-math.inf if diverged(point.value) else sign * point.value for point in (before, after))
    low = max(top, first)
    high = max(low, second)
    if after.step <= step * (1 + 1e-9):
        return high
    if not low > -math.inf or not high > low:
        return low
    # numpy's logarithm: the last bit of Python's may be another
    part = float(np.log(step / before.step) / np.log(after.step / before.step))
    part = min(max(part, 0.0), 1.0)
    return low * (1.0 - part) + high * part


def last_gain(best: Sequence[float]) -> float:
    """The last one of `gains`, of one doubling of values at most, to the bit."""
    last = len(best) - 1
    start = next((i for i, value in enumerate(best) if value > -math.inf), last)
    if start == last:
        return 0.0
    moved = (best[last] - best[start]) * (PER_DOUBLING / (last - start))
    return moved if math.isfinite(moved) else 0.0


def gains(best: Floats) -> Floats:
    """What was gained over the doubling that ends at each rung; where less than a doubling is known, the part that is,
    scaled up. 0 where nothing is.
    """
    found = np.zeros(len(best))
    known = np.flatnonzero(best > -np.inf)
    if not len(known):
        return found
    start = np.maximum(known - PER_DOUBLING, known[0])
    span = known - start
    scale = PER_DOUBLING / np.maximum(span, 1)
    with np.errstate(over="ignore"):
        moved = (best[known] - best[start]) * scale
    found[known] = np.where((span > 0) & np.isfinite(moved), moved, 0.0)
    return found
