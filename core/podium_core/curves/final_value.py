"""Where each trial will end, with an interval: what is still gained is a multiple of what was gained of late.

Called for the `envelope` policy's forecasts and by the calibration report. The multiple (final value - best so far) /
scale has a distribution that depends on how many doublings of training are left and surprisingly little on the task:
`TABLE` holds its quantiles on recorded curves (benchmarks/hpo/calibration.py --fit prints it anew; its
report shows how it covers tasks that it has not seen). Trials of the same job that have completed move it to their own.
The envelope's decisions read nothing of this but `width`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import PER_DOUBLING, EqualTraining, middle
from podium_core.curves.curve_table import Board, Floats
from podium_core.domain.snapshot import TrialKey

LEVELS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)
DOUBLINGS_LEFT = (0.2, 0.55, 1.0, 1.5, 2.0, 2.75, 3.75, 4.8)
PEERS = 0.5  # the scale is at least this part of what the better half gains: a plateau may be left again
WEIGHT = 4.0  # completed trials that count as much as the table
BEYOND = 0.5  # of the range between best and worst at equal training: so far beyond the best may a trial end
SETTLED = 2.0  # doublings that a trial has shown values over; before, the range itself is still to open
COMPANY = 8  # completed trials: that the next one beats them all has the chance 1 / 9, about what an 80 % interval lets
_TINY, _HUGE = 1e-12, 1e300
TABLE = np.array(
    [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.04, 0.09, 0.23, 0.41, 0.59, 1.07],
        [0.0, 0.0, 0.0, 0.0, 0.02, 0.14, 0.29, 0.44, 0.64, 0.91, 1.34, 1.83, 3.05],
        [0.0, 0.0, 0.0, 0.0, 0.12, 0.34, 0.53, 0.74, 0.99, 1.32, 2.08, 2.87, 4.0],
        [0.0, 0.0, 0.0, 0.0, 0.38, 0.72, 1.01, 1.33, 1.72, 2.22, 3.43, 5.3, 9.22],
        [0.0, 0.0, 0.0, 0.05, 0.46, 0.88, 1.23, 1.67, 2.17, 2.98, 4.81, 7.53, 15.55],
        [0.0, 0.0, 0.0, 0.19, 0.6, 0.99, 1.35, 1.78, 2.36, 3.43, 5.95, 10.16, 15.71],
        [0.0, 0.0, 0.0, 0.33, 0.64, 0.98, 1.31, 1.62, 2.09, 2.86, 5.09, 7.69, 12.29],
        [0.0, 0.0, 0.0, 0.33, 0.56, 1.0, 1.36, 1.65, 2.15, 2.98, 4.77, 6.42, 8.8],
    ]
)


def widths(table: Floats) -> tuple[Floats, Floats]:
    """Doublings left, and by them the width of the table's 80 % interval."""
    found = np.maximum.accumulate(table[:, LEVELS.index(0.9)] - table[:, LEVELS.index(0.1)])
    return np.array((0.0, *DOUBLINGS_LEFT)), np.array((0.0, *found))


_WIDTH_BY_DOUBLINGS = widths(TABLE)
_AT_LEVELS = np.array(LEVELS)


def shares_of_levels() -> Floats:
    """The probability that each of LEVELS stands for: all that is nearer to it than to its neighbours. Sum 1."""
    between = (_AT_LEVELS[1:] + _AT_LEVELS[:-1]) / 2
    return np.diff(between, prepend=0.0, append=1.0)


_SHARES = shares_of_levels()
_MIDPOINTS = np.cumsum(_SHARES) - _SHARES / 2


@dataclass(frozen=True, slots=True)
class Forecast:
    """A trial's final best value, in its metric's own direction: the middle, and the interval that holds it with the
    probability `level`.
    """

    middle: float
    low: float
    high: float
    level: float


def multiples(doublings: Floats, table: Floats = TABLE) -> Floats:
    """Quantiles at LEVELS of what is still to come, in units of the scale: (doublings, levels). 0 at the end: a trial
    that has trained to its horizon is its best value.
    """
    at = (0.0, *DOUBLINGS_LEFT)
    return np.stack([np.interp(doublings, at, (0.0, *column)) for column in table.T], axis=1)


def informed(expected: Floats, seen: Floats) -> Floats:
    """These quantiles at LEVELS (rows, levels) once completed trials have shown the multiples `seen`: those of a
    mixture in which the table has WEIGHT and each completed trial 1 (the posterior mean of a Dirichlet process,
    Ferguson 1973). A mean of quantiles would lose the table's tails to a few trials, and keep the table's middle.
    Many of them are carried on by as many quantiles as the table has: O(rows levels) and a sort, however many.
    """
    if not len(seen):
        return expected
    seen = np.clip(seen, -_HUGE, _HUGE)  # infinity times nothing is no number
    many = len(seen) > len(LEVELS)
    own = np.quantile(seen, _MIDPOINTS, method="hazen") if many else seen
    values = np.concatenate([expected, np.broadcast_to(own, (len(expected), len(own)))], axis=1)
    weights = np.concatenate([WEIGHT * _SHARES, len(seen) * _SHARES if many else np.ones(len(seen))])
    order = np.argsort(values, axis=1, kind="stable")
    values, weights = np.take_along_axis(values, order, axis=1), weights[order]
    reached = (np.cumsum(weights, axis=1) - weights / 2) / (WEIGHT + len(seen))
    after = np.clip((reached[:, None, :] < _AT_LEVELS[:, None]).sum(axis=2), 1, values.shape[1] - 1)
    low, high = (np.take_along_axis(reached, place, axis=1) for place in (after - 1, after))
    part = np.clip((_AT_LEVELS - low) / (high - low), 0.0, 1.0)
    before, behind = (np.take_along_axis(values, place, axis=1) for place in (after - 1, after))
    found: Floats = before * (1.0 - part) + behind * part
    return found


def width(doublings: Floats) -> Floats:
    """Of the 80 % interval of what is still to come, in units of the scale: 0 at the end, never less with more left."""
    found: Floats = np.interp(doublings, *_WIDTH_BY_DOUBLINGS)
    return found


def scales(table: EqualTraining, rows: NDArray[np.intp], rungs: NDArray[np.intp]) -> Floats:
    return np.maximum(np.maximum(table.gain[rows, rungs], PEERS * table.typical[rungs]), _TINY)


def ceilings(table: EqualTraining, rows: NDArray[np.intp], rungs: NDArray[np.intp]) -> Floats:
    """What these rows will not exceed, as far as equal training has shown (larger is better): the best there and BEYOND
    of the range between it and the worst. A multiple of a fast gain knows no bounds, a metric often has one.
    Infinite for a trial that is not SETTLED. The rungs must have been measured.
    """
    known = table.best > -np.inf
    worst = np.minimum.accumulate(np.where(known, table.best, np.inf).min(axis=0))
    age = (rungs - known[rows].argmax(axis=1)) / PER_DOUBLING
    with np.errstate(over="ignore", invalid="ignore"):  # a range beyond the largest number bounds nothing
        found = table.lead[rungs] + BEYOND * (table.lead[rungs] - worst[rungs])
    return np.where((age >= SETTLED) & np.isfinite(found), found, np.inf)


def bounds(best: Floats, ceiling: Floats, completed: Floats, leader: float = -np.inf) -> Floats:
    """The final values that these trials (by row their best so far and their ceiling) will not exceed, given those of
    the completed and the best so far of all trials, `leader`. What one of them has reached another may reach, however
    early it is; who is still below the best of COMPANY or more may exceed it by as much as it exceeds their median,
    unless a trial at work has shown that they tell too little. In any unit, larger is better.
    """
    if not len(completed):
        return np.maximum(ceiling, best)
    top = float(completed.max())
    found = np.maximum(ceiling, top)
    if len(completed) >= COMPANY and leader <= top:
        with np.errstate(over="ignore"):
            beyond = np.float64(top) + (top - middle(completed))
        found = np.where(best < top, np.minimum(found, beyond), found)
    return np.maximum(found, best)


def quantiles(table: EqualTraining, board: Board, rows: NDArray[np.intp], levels: Sequence[float]) -> Floats:
    """Of the final values (larger is better) of these rows, all of which have shown something finite: (rows, levels).
    O(rungs n log n) at most; in practice microseconds a row.
    """
    rungs = table.rung[rows]
    left = np.log2(table.horizon / np.maximum(board.step[rows], table.grid[0]))
    expected = multiples(left)
    for rung in np.unique(rungs).tolist():
        here = rungs == rung
        expected[here] = informed(expected[here], shown_by_completed(table, board, rung))
    expected[board.done[rows] | (left <= 0.0)] = 0.0
    at = np.interp(levels, LEVELS, np.arange(len(LEVELS)))
    low = np.minimum(at.astype(np.intp), len(LEVELS) - 2)
    part = at - low
    between = expected[:, low] * (1.0 - part) + expected[:, low + 1] * part
    with np.errstate(over="ignore"):  # what is beyond the largest number is infinite
        found: Floats = board.best[rows, None] + scales(table, rows, rungs)[:, None] * between
    ends = board.best[board.complete & np.isfinite(board.best)]
    highest = bounds(board.best[rows], ceilings(table, rows, rungs), ends, float(board.best.max()))
    return np.minimum(found, highest[:, None])


def shown_by_completed(table: EqualTraining, board: Board, rung: int) -> Floats:
    """The multiples that the completed trials turned out to have from this rung on."""
    rows = np.flatnonzero(board.complete & np.isfinite(table.best[:, rung]) & np.isfinite(board.best))
    units = scales(table, rows, np.full(len(rows), rung))
    with np.errstate(over="ignore"):
        return np.asarray((board.best[rows] - table.best[rows, rung]) / units)


def forecasts(table: EqualTraining, board: Board, level: float = 0.8) -> Mapping[TrialKey, Forecast]:
    """Of every trial that has shown a finite value."""
    standing = table.best[np.arange(len(board)), table.rung]
    rows = np.flatnonzero((table.rung >= 0) & (standing > -np.inf))
    ends = ((1.0 - level) / 2, 0.5, (1.0 + level) / 2)
    found: dict[TrialKey, Forecast] = {}
    for row, values in zip(rows.tolist(), quantiles(table, board, rows, ends).tolist(), strict=True):
        low, middle, high = sorted(board.sign * value for value in values)
        found[board.keys[row]] = Forecast(middle, low, high, level)
    return found
