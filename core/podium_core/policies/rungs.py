"""Rungs of successive halving for `asha` and `hyperband`: each trial's position and value.

Jamieson and Talwalkar, AISTATS 2016; Li et al., JMLR 18 (2018) for the brackets, MLSys 2020 for the rule without a
barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable
from podium_core.curves.non_finite import diverged
from podium_core.curves.thinning import reached_at
from podium_core.domain.snapshot import Point

NO_RUNG = -1
# Seconds by which training may be ahead of the planner's knowledge. An agent writes values every few seconds, and a
# cycle and a suspension take time. A trial that trained on for longer must have been promoted.
UNSEEN_SECONDS = 30.0
MAX_ETA = 1000.0  # Its power of 16 rungs must stay finite, and no bracket has more trials than that.


def check_halving(eta: float, rungs: int) -> None:
    """Raise ValueError where no halving is possible with these settings of a policy."""
    if not eta > 1.0:
        raise ValueError(f"eta: {eta:g} promotes every trial; give a number above 1")
    if eta > MAX_ETA:
        raise ValueError(f"eta: {eta:g} promotes no trial; give {MAX_ETA:g} at most")
    if not 1 <= rungs <= 16:
        raise ValueError(f"rungs: {rungs} is not a possible number of rungs; give 1 to 16")


def rung_steps(budget: float, eta: float, count: int) -> tuple[float, ...]:
    """Return the steps budget * eta^-j, lowest first, without the budget itself: that is a trial's end."""
    return tuple(budget * eta**-j for j in range(count, 0, -1))


@dataclass(frozen=True, slots=True)
class RungArrivals:
    """Arrivals of the trials at the rungs, by row and rung.

    `value`: a trial's best at its first evaluation on or above the rung (larger is better; -inf where nothing finite,
    NaN where it has not arrived). `time`: when that value was printed (inf where it has not arrived). `passed`: the
    trial trained on for more than UNSEEN_SECONDS since, so it must have been promoted, whatever thinned values or
    removed trials suggest. `beyond`, by row: the trial trained past the evaluation of its highest rung, or has started
    and stands on none.
    """

    value: NDArray[np.float64]
    time: NDArray[np.float64]
    passed: NDArray[np.bool_]
    beyond: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RungPositions:
    """Position of each trial, by row.

    `value`: as in `RungArrivals`. `rung`: where the trial stands (the last rung that it was allowed to pass), or
    NO_RUNG. `at`: its value there, -inf without one. `held`: it was not allowed to pass that rung, however far it has
    trained. `between`: it was allowed to continue from there and is on its way.
    """

    value: NDArray[np.float64]
    rung: NDArray[np.intp]
    at: NDArray[np.float64]
    held: NDArray[np.bool_]
    between: NDArray[np.bool_]


def arrivals_of_curve(curve: Sequence[Point], sign: float, levels: Sequence[float]) -> list[float]:
    """Return one trial's value, time and `passed` at each rung.

    The last result is the step of its arrival at the highest rung.
    """
    width = len(levels)
    values, times = [np.nan] * width, [np.inf] * width
    last = 0.0
    best, k = -np.inf, 0
    for index, point in enumerate(curve):
        if not diverged(point.value):
            best = max(best, sign * point.value)
        while k < width and point.step >= levels[k] * (1 - 1e-9):
            last, times[k] = reached_at(curve, index, levels[k])
            values[k] = best
            k += 1
    latest = curve[-1].time if curve else 0.0
    return [*values, *times, *(latest - time > UNSEEN_SECONDS for time in times), last]


def rung_arrivals(curves: CurveTable, steps: Sequence[float], suspendable: bool) -> RungArrivals:
    """Return the arrivals. O(n) a cycle; a curve is read once per new point.

    `suspendable`: the trials can be suspended. Others train on while their GPU is not wanted, so training on shows no
    promotion.
    """
    levels, width = tuple(steps), len(steps)
    read = partial(arrivals_of_curve, sign=curves.sign, levels=levels)
    table = curves.per_curve(("rungs", levels), 3 * width + 1, read).copy(order="F")  # rungs are read one by one
    value, time, passed = (table[:, k * width : (k + 1) * width] for k in range(3))
    beyond = np.where(np.isnan(value[:, 0]), curves.started, curves.step > table[:, -1])
    return RungArrivals(value, time, (passed > 0.0) & suspendable, beyond)


def rung_positions(arrivals: RungArrivals, allowed: NDArray[np.bool_]) -> RungPositions:
    """Return where each trial stands: on the lowest rung that it was not allowed to pass.

    `allowed`: by row and rung, whether a trial that arrived there was ever allowed to continue. A value past a rung
    does not show that: values may arrive faster than the planner runs.
    """
    there = ~np.isnan(arrivals.value)
    stuck = there & ~(allowed | arrivals.passed)
    held = np.any(stuck, axis=1)
    rung = np.count_nonzero(there, axis=1) - 1
    for k in reversed(range(stuck.shape[1])):
        rung[stuck[:, k]] = k
    at = np.where(rung == NO_RUNG, -np.inf, arrivals.value[np.arange(len(rung)), np.maximum(rung, 0)])
    return RungPositions(arrivals.value, rung, at, held, arrivals.beyond & ~held)


def promotion_count(arrived: int, eta: float, least: int) -> int:
    """Return how many of the trials that arrived at a rung are promoted."""
    return max(least if arrived else 0, int(arrived / eta))


def top_fraction(values: NDArray[np.float64], eta: float, least: int = 0) -> NDArray[np.bool_]:
    """Return which trials on one rung (not NaN) are in the best 1/eta; ties go to the lower row."""
    there = np.flatnonzero(~np.isnan(values))
    count = promotion_count(len(there), eta, least)
    chosen = np.zeros(len(values), dtype=bool)
    if not count:
        return chosen
    finite = there[values[there] > -np.inf]
    if len(finite) <= count:
        chosen[finite] = True
        return chosen
    last = np.partition(values[finite], -count)[-count]
    chosen[finite] = values[finite] > last
    ties = finite[values[finite] == last]
    chosen[ties[: count - np.count_nonzero(chosen)]] = True
    return chosen
