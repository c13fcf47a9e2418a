"""Where each trial will end, with an interval: what is still gained is a multiple of what was gained of late.

Called for the `envelope` policy's forecasts and by the calibration report. The multiple (final value - best so far) /
scale has a distribution that depends on how many doublings of training are left and surprisingly little on the task:
`TABLE` holds its quantiles on recorded curves (benchmarks/hpo_calibration.py --fit prints it anew; its
report shows how it covers tasks that it has not seen). Trials of the same job that have completed move it to their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.curves.board import Board, Floats
from podium.curves.equal_training import EqualTraining
from podium.domain.snapshot import TrialKey

LEVELS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)
DOUBLINGS_LEFT = (0.2, 0.55, 1.0, 1.5, 2.0, 2.75, 3.75, 4.8)
PEERS = 0.5  # the scale is at least this part of what the better half gains: a plateau may be left again
WEIGHT = 16.0  # completed trials that count as much as the table
_TINY = 1e-12
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


@dataclass(frozen=True, slots=True)
class Forecast:
    """A trial's final best value, in its metric's own direction: the middle, and the interval that holds it with the
    probability `level`.
    """

    middle: float
    low: float
    high: float
    level: float


def multiples(doublings: float, table: Floats = TABLE) -> Floats:
    """Quantiles at LEVELS of what is still to come, in units of the scale."""
    return np.array([np.interp(doublings, DOUBLINGS_LEFT, column) for column in table.T])


def width(doublings: Floats) -> Floats:
    """Of the 80 % interval of what is still to come, in units of the scale: 0 at the end, never less with more left."""
    found: Floats = np.interp(doublings, *_WIDTH_BY_DOUBLINGS)
    return found


def scale(table: EqualTraining, row: int, rung: int) -> float:
    return float(_scales(table, np.array([row]), np.array([rung]))[0])


def _scales(table: EqualTraining, rows: NDArray[np.intp], rungs: NDArray[np.intp]) -> Floats:
    return np.maximum(np.maximum(table.gain[rows, rungs], PEERS * table.typical[rungs]), _TINY)


def quantiles(table: EqualTraining, board: Board, rows: NDArray[np.intp], levels: Sequence[float]) -> Floats:
    """Of the final values (larger is better) of these rows, all of which have shown something finite: (rows, levels).
    O(rungs n log n) at most; in practice microseconds a row.
    """
    rungs = table.rung[rows]
    left = np.log2(table.horizon / np.maximum(board.step[rows], table.grid[0]))
    expected = np.stack([np.interp(left, DOUBLINGS_LEFT, column) for column in TABLE.T], axis=1)
    for rung in np.unique(rungs).tolist():
        seen = shown_by_completed(table, board, rung)
        if len(seen):
            here = rungs == rung
            own = np.quantile(seen, LEVELS)
            expected[here] = (WEIGHT * expected[here] + len(seen) * own) / (WEIGHT + len(seen))
    expected[board.done[rows]] = 0.0
    at = np.interp(levels, LEVELS, np.arange(len(LEVELS)))
    low = np.minimum(at.astype(np.intp), len(LEVELS) - 2)
    part = at - low
    between = expected[:, low] * (1.0 - part) + expected[:, low + 1] * part
    with np.errstate(over="ignore"):  # what is beyond the largest number is infinite
        found: Floats = board.best[rows, None] + _scales(table, rows, rungs)[:, None] * between
    return found


def shown_by_completed(table: EqualTraining, board: Board, rung: int) -> Floats:
    """The multiples that the completed trials turned out to have from this rung on."""
    rows = np.flatnonzero(board.complete & np.isfinite(table.best[:, rung]) & np.isfinite(board.best))
    scales = _scales(table, rows, np.full(len(rows), rung))
    return np.asarray((board.best[rows] - table.best[rows, rung]) / scales)


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
