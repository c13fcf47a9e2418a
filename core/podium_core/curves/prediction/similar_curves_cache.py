"""Predictions from similar curves, kept from cycle to cycle (formulas: `similar_curves.py`).

The `envelope` policy calls it. Each row depends on its own curve and on the completed trials only. A new value costs
O(completed); a newly completed trial recomputes all rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import AlignedCurves
from podium_core.curves.alignment import GRID_SIZE
from podium_core.curves.curve_table import CurveTable
from podium_core.curves.prediction.similar_curves import (
    MIN_COMPLETED,
    LeaveOneOut,
    chance_above_best,
    final_order,
    leave_one_out,
    rank_columns,
)
from podium_core.curves.row_cache import RowCache
from podium_core.curves.statistics import Floats


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions by row; arrays are copies.

    `chance`: probability to end above the best completed trial, 0 where not `predicted`. `skill`: 0 (no better than the
    prior) to 1, measured by leave-one-out at the columns of the predicted trials.
    """

    predicted: NDArray[np.bool_]
    chance: Floats
    skill: float
    total: float  # sum of all chances
    count: int  # number of predicted trials


class _Completed:
    """The completed trials; a column is measured when a trial first stands there."""

    def __init__(self, best: Floats) -> None:
        """Store the completed trials. `best`: their values by column, in their final order."""
        self.skill = np.zeros(GRID_SIZE)  # by column, where measured
        self._count = len(best)
        self._columns = rank_columns(best)
        self._measured: dict[int, LeaveOneOut] = {}

    def at(self, column: int) -> LeaveOneOut:
        measured = self._measured.get(column)
        if measured is None:
            measured = self._measured[column] = leave_one_out(self._columns, column, self._count)
            self.skill[column] = measured.skill
        return measured


class SimilarCurves(RowCache):
    """Predictions of one table of aligned curves."""

    chance: Floats

    def __init__(self, rows: int) -> None:
        super().__init__(rows, {"chance": 0.0})

    def predict(self, curves: CurveTable, aligned: AlignedCurves, live: NDArray[np.bool_]) -> Predictions | None:
        """Return the predictions of the live rows; None while too few trials have completed."""
        rows = (curves.complete & (curves.best > -np.inf)).nonzero()[0]
        if len(rows) < MIN_COMPLETED:
            return None
        key = (rows.tobytes(), curves.version[rows].tobytes())

        def read() -> _Completed:
            return _Completed(aligned.best[rows[final_order(curves.best[rows])]])

        def compute() -> Predictions | None:
            completed = self.remembered("completed", key, read)
            predicted = live & (aligned.column >= 0)
            for row in self.stale_rows(aligned.version, among=predicted, basis=key).tolist():
                others = completed.at(int(aligned.column[row]))
                self.chance[row] = chance_above_best(aligned.best[row].tolist(), others)
            if not np.count_nonzero(predicted):
                return None
            skills = completed.skill[aligned.column[predicted]].tolist()
            chance, skill = np.where(predicted, self.chance, 0.0), math.fsum(skills) / len(skills)
            return Predictions(predicted, chance, skill, float(chance.sum()), len(skills))

        return self.remembered("predictions", (key, live.tobytes(), aligned.version.tobytes()), compute)


def predict_by_similar_curves(
    curves: CurveTable, aligned: AlignedCurves, live: NDArray[np.bool_]
) -> Predictions | None:
    """Return predictions of the `live` rows from the completed trials; None while too few have completed."""
    memory = aligned.cached("similar curves", lambda: SimilarCurves(len(curves)))
    return memory.predict(curves, aligned, live)
