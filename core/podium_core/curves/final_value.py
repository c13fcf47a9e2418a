"""Prediction of each trial's final value, with an interval.

Used for the `envelope` policy's forecasts and by the calibration report. The policy's decisions use only
`interval_width`.

Model. A trial's final value is best + scale * M. The scale is the trial's gain over its last doubling of training, but
at least half of the typical gain at that column. M depends on the number of doublings that remain, and very little on
the task: `TABLE` holds the quantiles of M on recorded curves (`benchmarks/hpo/calibration.py --fit` computes it; its
report shows the coverage on tasks that were not used). Completed trials of the same job shift the quantiles towards
their own multiples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import PER_DOUBLING, AlignedCurves, median
from podium_core.curves.curve_table import CurveTable, Floats
from podium_core.domain.snapshot import TrialKey

LEVELS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)
DOUBLINGS_LEFT = (0.2, 0.55, 1.0, 1.5, 2.0, 2.75, 3.75, 4.8)
MIN_GAIN_SHARE = (
    0.5  # The scale is at least this share of the typical gain, because a curve may rise again after a plateau.
)
PRIOR_WEIGHT = 4.0  # number of completed trials that weigh as much as the table
RANGE_BEYOND_LEADER = 0.5  # A trial may exceed the leader by this share of the range of values at equal training.
MIN_DOUBLINGS = 2.0  # doublings over which a trial must have reported values; before, the range itself still grows
# completed trials; the chance that the next one beats all of them is 1 / 9, about what an 80 % interval allows
MIN_COMPLETED = 8
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


def interval_widths(quantiles: Floats) -> tuple[Floats, Floats]:
    """Return the doublings left and the width of the table's 80 % interval at each of them."""
    result = np.maximum.accumulate(quantiles[:, LEVELS.index(0.9)] - quantiles[:, LEVELS.index(0.1)])
    return np.array((0.0, *DOUBLINGS_LEFT)), np.array((0.0, *result))


_WIDTH_BY_DOUBLINGS = interval_widths(TABLE)
_AT_LEVELS = np.array(LEVELS)


def level_probabilities() -> Floats:
    """Return the probability that each of LEVELS represents: half of the way to each neighbour. Sum 1."""
    between = (_AT_LEVELS[1:] + _AT_LEVELS[:-1]) / 2
    return np.diff(between, prepend=0.0, append=1.0)


_PROBABILITIES = level_probabilities()
_MIDPOINTS = np.cumsum(_PROBABILITIES) - _PROBABILITIES / 2


@dataclass(frozen=True, slots=True)
class Forecast:
    """Prediction of a trial's final best value, in its metric's own direction.

    The median, and the interval that holds the value with probability `level`.
    """

    median: float
    low: float
    high: float
    level: float


def table_quantiles(doublings: Floats, quantiles: Floats = TABLE) -> Floats:
    """Return quantiles at LEVELS of the multiple M: (doublings, levels).

    0 at the end: a trial that has trained to its horizon keeps its best value.
    """
    at = (0.0, *DOUBLINGS_LEFT)
    return np.stack([np.interp(doublings, at, (0.0, *column)) for column in quantiles.T], axis=1)


def mix_with_completed(expected: Floats, seen: Floats) -> Floats:
    """Return these quantiles at LEVELS (rows, levels) after completed trials showed the multiples `seen`.

    They are the quantiles of a mixture in which the table has PRIOR_WEIGHT and each completed trial 1: the posterior
    mean of a Dirichlet process (Ferguson 1973). A mean of quantiles would lose the table's tails to a few trials and
    would keep the table's median. Many trials are represented by as many quantiles as the table has. O(rows levels) and
    one sort.
    """
    if not len(seen):
        return expected
    seen = np.clip(seen, -_HUGE, _HUGE)  # infinity times 0 is NaN
    many = len(seen) > len(LEVELS)
    own = np.quantile(seen, _MIDPOINTS, method="hazen") if many else seen
    values = np.concatenate([expected, np.broadcast_to(own, (len(expected), len(own)))], axis=1)
    weights = np.concatenate(
        [PRIOR_WEIGHT * _PROBABILITIES, len(seen) * _PROBABILITIES if many else np.ones(len(seen))]
    )
    order = np.argsort(values, axis=1, kind="stable")
    values, weights = np.take_along_axis(values, order, axis=1), weights[order]
    reached = (np.cumsum(weights, axis=1) - weights / 2) / (PRIOR_WEIGHT + len(seen))
    after = np.clip((reached[:, None, :] < _AT_LEVELS[:, None]).sum(axis=2), 1, values.shape[1] - 1)
    low, high = (np.take_along_axis(reached, place, axis=1) for place in (after - 1, after))
    part = np.clip((_AT_LEVELS - low) / (high - low), 0.0, 1.0)
    before, behind = (np.take_along_axis(values, place, axis=1) for place in (after - 1, after))
    result: Floats = before * (1.0 - part) + behind * part
    return result


def interval_width(doublings: Floats) -> Floats:
    """Return the width of the 80 % interval of M: 0 at the end, never smaller with more doublings left."""
    result: Floats = np.interp(doublings, *_WIDTH_BY_DOUBLINGS)
    return result


def scales(aligned: AlignedCurves, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
    return np.maximum(np.maximum(aligned.gain[rows, columns], MIN_GAIN_SHARE * aligned.typical_gain[columns]), _TINY)


def ceilings(aligned: AlignedCurves, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
    """Return limits of the final values of these rows by equal training (larger is better).

    The limit is the leader's value plus RANGE_BEYOND_LEADER times the range of values there: a multiple of a fast gain
    has no bound, but many metrics have one. It is infinite for trials with fewer than MIN_DOUBLINGS. The columns must
    have been measured.
    """
    known = aligned.best > -np.inf
    worst = np.minimum.accumulate(np.where(known, aligned.best, np.inf).min(axis=0))
    age = (columns - known[rows].argmax(axis=1)) / PER_DOUBLING
    with np.errstate(over="ignore", invalid="ignore"):  # A range that overflows bounds nothing.
        result = aligned.leader_value[columns] + RANGE_BEYOND_LEADER * (aligned.leader_value[columns] - worst[columns])
    return np.where((age >= MIN_DOUBLINGS) & np.isfinite(result), result, np.inf)


def upper_bounds(best: Floats, ceiling: Floats, completed: Floats, leader: float = -np.inf) -> Floats:
    """Return upper bounds of the final values of these trials (larger is better, in any unit).

    `best` and `ceiling`: their best values so far and their ceilings. `completed`: final values of the completed
    trials. `leader`: best value so far of all trials.

    A trial may reach whatever a completed one reached. A trial below the best of at least MIN_COMPLETED completed
    trials may exceed that best by the distance between that best and their median. The last rule does not apply once an
    unfinished trial has exceeded them all.
    """
    if not len(completed):
        return np.maximum(ceiling, best)
    top = float(completed.max())
    result = np.maximum(ceiling, top)
    if len(completed) >= MIN_COMPLETED and leader <= top:
        with np.errstate(over="ignore"):
            beyond = np.float64(top) + (top - median(completed))
        result = np.where(best < top, np.minimum(result, beyond), result)
    return np.maximum(result, best)


def final_quantiles(
    aligned: AlignedCurves, table: CurveTable, rows: NDArray[np.intp], levels: Sequence[float]
) -> Floats:
    """Return quantiles of the final values (larger is better) of these rows: (rows, levels).

    Each row must have reported a finite value. At most O(columns n log n); in practice microseconds a row.
    """
    columns = aligned.column[rows]
    left = np.log2(aligned.horizon / np.maximum(table.step[rows], aligned.grid[0]))
    expected = table_quantiles(left)
    for column in np.unique(columns).tolist():
        here = columns == column
        expected[here] = mix_with_completed(expected[here], completed_multiples(aligned, table, column))
    expected[table.done[rows] | (left <= 0.0)] = 0.0
    at = np.interp(levels, LEVELS, np.arange(len(LEVELS)))
    low = np.minimum(at.astype(np.intp), len(LEVELS) - 2)
    part = at - low
    between = expected[:, low] * (1.0 - part) + expected[:, low + 1] * part
    with np.errstate(over="ignore"):  # A value beyond the largest number is infinite.
        result: Floats = table.best[rows, None] + scales(aligned, rows, columns)[:, None] * between
    ends = table.best[table.complete & np.isfinite(table.best)]
    highest = upper_bounds(table.best[rows], ceilings(aligned, rows, columns), ends, float(table.best.max()))
    return np.minimum(result, highest[:, None])


def completed_multiples(aligned: AlignedCurves, table: CurveTable, column: int) -> Floats:
    """Return the multiples M that the completed trials had from this column on."""
    rows = np.flatnonzero(table.complete & np.isfinite(aligned.best[:, column]) & np.isfinite(table.best))
    units = scales(aligned, rows, np.full(len(rows), column))
    with np.errstate(over="ignore"):
        return np.asarray((table.best[rows] - aligned.best[rows, column]) / units)


def forecasts(aligned: AlignedCurves, table: CurveTable, level: float = 0.8) -> Mapping[TrialKey, Forecast]:
    """Return the prediction of every trial that has reported a finite value."""
    standing = aligned.best[np.arange(len(table)), aligned.column]
    rows = np.flatnonzero((aligned.column >= 0) & (standing > -np.inf))
    ends = ((1.0 - level) / 2, 0.5, (1.0 + level) / 2)
    result: dict[TrialKey, Forecast] = {}
    for row, values in zip(rows.tolist(), final_quantiles(aligned, table, rows, ends).tolist(), strict=True):
        low, middle_value, high = sorted(table.sign * value for value in values)
        result[table.keys[row]] = Forecast(middle_value, low, high, level)
    return result
