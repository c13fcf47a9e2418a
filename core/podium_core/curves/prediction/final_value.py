"""Prediction of each trial's final value, with an interval.

Used for the statuses of trials (`predictions`) and by the calibration report. The decisions of the `envelope` policy
use only the widths of the intervals (`multiples`).

Model. A trial's final value is best + scale * M. The scale is the trial's gain over its last doubling of training, but
at least half of the typical gain at that column. M depends on the number of doublings that remain, and very little on
the task: `TABLE` holds the quantiles of M on recorded curves (`benchmarks/hpo/calibration.py --fit` computes it; its
report shows the coverage on tasks that were not used). Completed trials of the same job shift the quantiles towards
their own multiples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import AlignedCurves, align
from podium_core.curves.alignment import PER_DOUBLING
from podium_core.curves.curve_table import CurveTable, curves_of_job
from podium_core.curves.prediction.multiples import LEVELS, mix_with_completed, table_quantiles
from podium_core.curves.statistics import Floats, median
from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import FINAL
from podium_core.domain.snapshot import JobView, Snapshot

MIN_GAIN_SHARE = (
    0.5  # The scale is at least this share of the typical gain, because a curve may rise again after a plateau.
)
RANGE_BEYOND_LEADER = 0.5  # A trial may exceed the leader by this share of the range of values at equal training.
MIN_DOUBLINGS = 2.0  # doublings over which a trial must have reported values; before, the range itself still grows
# completed trials; the chance that the next one beats all of them is 1 / 9, about what an 80 % interval allows
MIN_COMPLETED = 8
LEVEL = 0.8  # probability that the interval contains the final value
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Forecast:
    """Prediction of a trial's final best value, in its metric's own direction.

    The median, and the interval that holds the value with probability `level`.
    """

    median: float
    low: float
    high: float
    level: float


def scales(aligned: AlignedCurves, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
    return np.maximum(
        np.maximum(aligned.gain[rows, columns], MIN_GAIN_SHARE * aligned.columns.typical_gain[columns]), _TINY
    )


def ceilings(aligned: AlignedCurves, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
    """Return limits of the final values of these rows by equal training (larger is better).

    The limit is the leader's value plus RANGE_BEYOND_LEADER times the range of values there. It is needed because a
    multiple of a fast gain has no bound, but many metrics have one. It is infinite for trials with fewer than
    MIN_DOUBLINGS. The columns must have been measured.
    """
    known = aligned.best > -np.inf
    worst = np.minimum.accumulate(np.where(known, aligned.best, np.inf).min(axis=0))
    age = (columns - known[rows].argmax(axis=1)) / PER_DOUBLING
    with np.errstate(over="ignore", invalid="ignore"):  # A range that overflows bounds nothing.
        leader = aligned.columns.leader_value[columns]
        result = leader + RANGE_BEYOND_LEADER * (leader - worst[columns])
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


def forecasts(aligned: AlignedCurves, table: CurveTable, level: float = LEVEL) -> Mapping[TrialKey, Forecast]:
    """Return the prediction of every trial that has reported a finite value."""
    standing = aligned.best[np.arange(len(table)), aligned.column]
    rows = np.flatnonzero((aligned.column >= 0) & (standing > -np.inf))
    ends = ((1.0 - level) / 2, 0.5, (1.0 + level) / 2)
    result: dict[TrialKey, Forecast] = {}
    for row, values in zip(rows.tolist(), final_quantiles(aligned, table, rows, ends).tolist(), strict=True):
        low, middle_value, high = sorted(table.sign * value for value in values)
        result[table.keys[row]] = Forecast(middle_value, low, high, level)
    return result


def predictions(job: JobView, snapshot: Snapshot) -> Mapping[TrialKey, Forecast]:
    """Return the prediction of each unfinished trial that has a finite value. Microseconds per trial.

    The trial's status shows it. The operator calls this function for each job in each reconcile, whatever policy the
    job has. A job without maxSteps gets no prediction: its trials have no defined end.
    """
    unfinished = [trial for trial in snapshot.trials_by_job.get(job.key, ()) if trial.phase not in FINAL]
    if job.state.finished or job.max_steps is None or job.max_steps <= 0.0 or not unfinished:
        return {}
    curves = curves_of_job(job, unfinished, snapshot)
    by_trial = forecasts(align(curves, job.max_steps), curves)
    known = {trial.key: by_trial[trial.key] for trial in unfinished if trial.key in by_trial}
    # Huge values overflow, and a status is JSON, which has no infinity.
    return {key: one for key, one in known.items() if math.isfinite(one.low) and math.isfinite(one.high)}
