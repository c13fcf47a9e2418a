"""Formulas of the comparison at equal training, on plain arrays.

A trial that has trained three times as long as another is not better for that reason; only values at the same step can
be compared. So all curves are read on one grid of training steps. `AlignedCurves` applies the formulas to a job.

Definitions. H is the horizon (steps of a whole trial) and the grid has 8 steps per doubling: s_c = H 2^(-(79 - c) / 8)
for the columns c = 0 ... 79. With larger values better:
  best[i, c]    best value of trial i up to step s_c, interpolated over log(step) between two evaluations;
                NaN beyond its last evaluation
  gain[i, c]    best[i, c] - best[i, c - 8]: what trial i gained over the last doubling of training
  leader_value[c] = max_i best[i, c];  leader_gain[c] is the gain of that trial
  typical_gain[c]   median gain of the better half of the trials at s_c
  gain_ratio[c]     typical_gain[c] / median deficit of the better half to the leader, from 0.001 to 1000
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from podium_core.curves.non_finite import diverged
from podium_core.curves.statistics import Floats, Rows, median
from podium_core.domain.snapshot import Point

PER_DOUBLING = 8
DOUBLINGS = 10
GRID_SIZE = PER_DOUBLING * DOUBLINGS
LEADING_SHARE = 0.5  # Share of the trials that the scales of a column use; trials far behind do not describe the race.
_TINY = 1e-12


def grid_steps(horizon: float) -> Floats:
    """Return the steps of the grid, s_c."""
    steps: Floats = horizon * 2.0 ** (-np.arange(GRID_SIZE - 1, -1, -1) / PER_DOUBLING)
    return steps


def best_on_grid(curve: Sequence[Point], sign: float, grid: Floats, final: float | None) -> Floats:
    """Return `best` of one trial.

    `final`: best value of a completed trial, which holds at every later step.
    """
    best = running_best(curve, sign, grid)
    if final is not None and curve:
        best[grid > curve[-1].step] = final
    return best


def running_best(curve: Sequence[Point], sign: float, grid: Floats, top: float = -np.inf) -> Floats:
    """Return the best value so far at each step of the grid that lies within the curve.

    NaN outside the curve, -inf before its first finite value. `top` is the best value before this piece of a curve.
    O(points + grid steps).
    """
    values = np.full(len(grid), np.nan)
    kept = [(p.step, -np.inf if diverged(p.value) else sign * p.value) for p in curve if p.step > 0.0]
    if not kept:
        return values
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
    values[within] = value
    return values


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


def gains(best: Floats) -> Floats:
    """Return the gain over the doubling that ends at each column.

    Where less than a doubling is known, the known part is scaled up. 0 where no gain is known.
    """
    gain = np.zeros(len(best))
    known = np.flatnonzero(best > -np.inf)
    if not len(known):
        return gain
    start = np.maximum(known - PER_DOUBLING, known[0])
    span = known - start
    scale = PER_DOUBLING / np.maximum(span, 1)
    with np.errstate(over="ignore"):
        gained = (best[known] - best[start]) * scale
    gain[known] = np.where((span > 0) & np.isfinite(gained), gained, 0.0)
    return gain


def last_gain(best: Sequence[float]) -> float:
    """Return the last entry of `gains` for at most one doubling of values, to the last bit."""
    last = len(best) - 1
    start = next((i for i, value in enumerate(best) if value > -math.inf), last)
    if start == last:
        return 0.0
    gained = (best[last] - best[start]) * (PER_DOUBLING / (last - start))
    return gained if math.isfinite(gained) else 0.0


class ColumnScales(NamedTuple):
    """Leader and scales of one column."""

    leader_value: float = math.nan  # NaN where no trial has a finite value
    leader_gain: float = 0.0
    typical_gain: float = 0.0
    gain_ratio: float = 1.0


def column_scales(best: Floats, gain: Floats) -> ColumnScales:
    """Return the scales of a column from the best values and gains of all trials there. O(n log n)."""
    there = (best > -np.inf).nonzero()[0]
    if not len(there):
        return ColumnScales()
    values, gain = best[there], gain[there]
    order = (-values).argsort(kind="stable")
    half = min(len(there), max(2, int(LEADING_SHARE * len(there))))
    top = values[order[: half + 1]].tolist()
    leader = top[0]
    # median deficit, which may overflow to infinity
    low, high = leader - top[(len(top) - 1) // 2], leader - top[len(top) // 2]
    deficit = low if low == high else low / 2 + high / 2
    typical = max(0.0, median(gain[order[:half]]))
    ratio = min(1e3, max(1e-3, (typical + _TINY) / (deficit + _TINY)))
    return ColumnScales(leader, max(0.0, float(gain[order[0]])), typical, ratio)


@dataclass(frozen=True, slots=True)
class Standings:
    """Position of each trial (by row) at the highest column that it has reached.

    Larger values are better. All arrays are copies.
    """

    column: Rows  # -1: no value on the grid yet
    value: Floats
    deficit: Floats  # leader's value at this column minus the trial's value; NaN where unknown
    gain: Floats  # gain over the trial's last doubling of training
    leader_gain: Floats  # gain of the leader at this column
    gain_ratio: Floats  # `gain_ratio` at this column: above 1 the trials still gain more than they differ


def standings(best: Floats, gain: Floats, column: Rows, scales: Sequence[Floats]) -> Standings:
    """Return the standings. `scales`: by column, the leader's value, the leader's gain and the gain ratio."""
    leader_value, leader_gain, gain_ratio = scales
    rows, columns = best.shape
    cell = np.arange(0, rows * columns, columns) + np.maximum(column, 0)  # several times faster than two indices
    value, own_gain = best.reshape(-1).take(cell), gain.reshape(-1).take(cell)
    with np.errstate(over="ignore", invalid="ignore"):
        deficit = leader_value.take(column) - value
    deficit[column < 0] = np.nan
    return Standings(column.copy(), value, deficit, own_gain, leader_gain.take(column), gain_ratio.take(column))
