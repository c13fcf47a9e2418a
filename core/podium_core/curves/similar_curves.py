"""Probability that a trial ends above the best completed one, predicted from similar curves.

The `envelope` policy calls it. Where the early order of the completed trials was not their final order, a trial's value
says little, and similar curves may say more.

Formula: kernel regression (Nadaraya 1964, Watson 1964) with KAPPA pseudo-observations of the prior:
  z_j = Phi^-1((rank_j + 0.5) / n)            normal score of completed trial j's final rank
  r_i(c)                                      rank of trial i's value among the completed trials' values at column c,
                                              scaled to [0, 1]
  w_ij = exp(-sum_c (r_i(c) - r_j(c))^2 / (2 h^2 m))   over m columns of the last three doublings of training
  mean_i = sum_j w_ij z_j / (sum_j w_ij + KAPPA)
  sd_i^2 = (sum_j w_ij e + KAPPA) / (sum_j w_ij + KAPPA)   e: leave-one-out error of a trial with similar curves
  chance_i = 1 - Phi((max_j z_j - mean_i) / sd_i)

Where no completed trial has a similar curve, the result is the prior. Leave-one-out skill: 1 - (mean squared error of
the prediction of each completed trial from the others) / (the same for the mean of the others), at least 0.

A cache: each row depends on its own curve and on the completed trials only, never on what was computed before. A new
value costs O(completed); a newly completed trial recomputes all rows. At most MAX_COMPLETED completed trials are used.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import cast

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import GRID_SIZE, PER_DOUBLING, AlignedCurves
from podium_core.curves.curve_table import CurveTable, Floats, reorder_rows

MIN_COMPLETED = 4  # completed trials before anything is predicted
MAX_COMPLETED = 64  # completed trials that are used, evenly spaced over their final ranks
COMPARED = 3 * PER_DOUBLING  # columns that are compared: every `STEP`-th of the last three doublings
STEP = 2
BANDWIDTH = 0.1  # h: bandwidth of the kernel, as a share of the completed trials
KAPPA = 0.3  # weight of the prior; a completed trial with an equal curve has weight 1
RANK_ABOVE_BEST = 1.25  # rank of a value as far above the best completed one as that is above the median
_MIN_ERROR = 0.01  # relative to the variance of normal scores
_MIN_CHANCE = 1e-6
_HUGE = float(np.finfo(np.float64).max)
_NORMAL = NormalDist()


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


@dataclass(frozen=True, slots=True)
class RankColumn:
    """Completed trials at one column, for ranking other values among them.

    Sorted values and their ranks, with one virtual value below and one above; the slope between neighbours; each
    completed trial's own rank and its squared distance to each other.
    """

    values: Sequence[float]
    ranks: Sequence[float]
    slopes: Sequence[float]
    own: Floats
    squares: Floats

    def rank(self, value: float) -> float:
        """Return the share of the completed trials below `value`, interpolated between two of them.

        A trial without a finite value has the lowest rank.
        """
        values, ranks = self.values, self.ranks
        if not value >= values[0]:
            return ranks[0]
        at = bisect_right(values, value) - 1
        if at >= len(values) - 1 or value == (below := values[at]):
            return ranks[at]
        return min(ranks[at + 1], ranks[at] + self.slopes[at] * (value - below))


def rank_columns(best: Floats) -> list[RankColumn | None]:
    """Return one `RankColumn` per column of `best` (completed, columns); None where no values differ.

    Columns with equally many values are computed at once: a call for each would cost more than the arithmetic.
    """
    found: list[RankColumn | None] = [None] * best.shape[1]
    ordered = np.sort(np.where(best > -np.inf, best, np.nan).T, axis=1)  # trials without a finite value are last
    counts = np.count_nonzero(~np.isnan(ordered), axis=1)
    highest = ordered[np.arange(len(ordered)), counts - 1]
    differ = (counts >= MIN_COMPLETED - 1) & (ordered[:, 0] != highest)
    for count in set(counts[differ].tolist()):
        columns = np.flatnonzero(differ & (counts == count))
        values, ranks = _extended(ordered[columns, :count])
        own_ranks = np.fmax(best[:, columns].T, -_HUGE)
        at = [each.searchsorted(own, side="right") for each, own in zip(values, own_ranks, strict=True)]
        own = ranks[np.maximum(np.array(at) - 1, 0)]
        squares = own[:, :, None] - own[:, None, :]
        squares *= squares
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            slopes = np.diff(ranks) / np.diff(values, axis=1)
        rank_list = ranks.tolist()
        for column, *parts in zip(columns.tolist(), values.tolist(), slopes.tolist(), own, squares, strict=True):
            found[column] = RankColumn(parts[0], rank_list, parts[1], parts[2], parts[3])
    return found


@dataclass(frozen=True, slots=True)
class _LeaveOneOut:
    """Leave-one-out results of the completed trials over the columns compared at one column."""

    columns: Mapping[int, RankColumn]
    ranks: Floats  # (completed, columns)
    error: float  # variance of a trial's score, given one with an equal curve
    skill: float


class SimilarCurves:
    """Cache of the predictions of one curve table for one horizon and one set of completed trials."""

    def __init__(self, rows: int) -> None:
        self.chance = np.zeros(rows)
        self._completed_key: tuple[bytes, bytes] | None = None
        self._score = np.zeros(0)  # normal scores of the final ranks
        self._prior_error = 1.0  # variance of a score predicted by the mean of the others
        self._columns: list[RankColumn | None] = []
        self._by_column: dict[int, _LeaveOneOut] = {}
        self._skill = np.zeros(GRID_SIZE)  # by column, where measured
        self._seen = np.full(rows, -1)

    def reorder(self, source: Sequence[int]) -> None:
        """Reorder the rows as `RowCache` describes.

        The completed trials are named by row, so everything is computed again unless all rows stay.
        """
        if list(source[: len(self.chance)]) != list(range(len(self.chance))):
            self._completed_key = None
        self.chance, self._seen = reorder_rows(self.chance, source, 0.0), reorder_rows(self._seen, source, -1)

    def predict(self, curves: CurveTable, aligned: AlignedCurves, live: NDArray[np.bool_]) -> Predictions | None:
        """Return the predictions of the live rows; None while too few trials have completed."""
        completed = (curves.complete & (curves.best > -np.inf)).nonzero()[0]
        if len(completed) < MIN_COMPLETED:
            return None
        key = (completed.tobytes(), curves.version[completed].tobytes())
        if key != self._completed_key:
            self._start_over(curves, aligned, completed)
            self._completed_key = key
        question = ("similar curves", key, live.tobytes())
        if question in aligned.results:  # the same question was asked before
            return cast(Predictions | None, aligned.results[question])
        predicted = live & (aligned.column >= 0)
        for row in (predicted & (self._seen != aligned.row_version)).nonzero()[0].tolist():
            self.chance[row] = self._chance_of_row(aligned, row, int(aligned.column[row]))
        self._seen[predicted] = aligned.row_version[predicted]
        predictions = None
        if np.count_nonzero(predicted):
            skills = self._skill[aligned.column[predicted]].tolist()
            chance, skill = np.where(predicted, self.chance, 0.0), math.fsum(skills) / len(skills)
            predictions = Predictions(predicted, chance, skill, float(chance.sum()), len(skills))
        aligned.results[question] = predictions
        return predictions

    def _start_over(self, curves: CurveTable, aligned: AlignedCurves, completed: NDArray[np.intp]) -> None:
        order = completed[np.argsort(curves.best[completed], kind="stable")]
        if len(order) > MAX_COMPLETED:
            order = order[np.linspace(0, len(order) - 1, MAX_COMPLETED).astype(np.intp)]
        self._score = score = _scores(len(order))
        self._prior_error = float((score**2).mean()) * (len(score) / (len(score) - 1)) ** 2
        self._columns, self._by_column = rank_columns(aligned.best[order]), {}
        self._seen[:] = -1

    def _chance_of_row(self, aligned: AlignedCurves, row: int, column: int) -> float:
        """Return the chance of one row. Uses Python floats: mostly one row is asked, and numpy calls cost more."""
        there = self._by_column.get(column)
        if there is None:
            there = self._by_column[column] = self._leave_one_out(column)
            self._skill[column] = there.skill
        best = aligned.best[row].tolist()
        own_ranks = [ranked.rank(best[c]) for c, ranked in there.columns.items()]
        weight = kernel(((there.ranks - own_ranks) ** 2).sum(axis=1), len(own_ranks))
        total = float(weight.sum())
        mean = float((weight * self._score).sum()) / (total + KAPPA)
        spread = math.sqrt((total * there.error + KAPPA) / (total + KAPPA))
        ahead = (mean - float(self._score[-1])) / spread
        return _MIN_CHANCE + 0.5 * math.erfc(-ahead / math.sqrt(2.0))

    def _leave_one_out(self, column: int) -> _LeaveOneOut:
        """Measure by leave-one-out how well completed trials predict each other at this column."""
        wanted = range(column, max(-1, column - COMPARED), -STEP)
        compared = {c: ranked for c in wanted if (ranked := self._columns[c]) is not None}
        score = self._score
        squares = np.zeros((len(score), len(score)))
        for ranked in compared.values():
            squares += ranked.squares
        weight = kernel(squares, len(compared))
        np.fill_diagonal(weight, 0.0)
        total = weight.sum(axis=1)
        off = (score - (weight * score).sum(axis=1) / (total + KAPPA)) ** 2
        known = total / (total + KAPPA)
        error = float((known * off).sum()) / max(float(known.sum()), _MIN_CHANCE) / self._prior_error
        skill = max(0.0, 1.0 - float(off.sum()) / len(off) / self._prior_error)
        ranks = np.array([ranked.own for ranked in compared.values()]).reshape(len(compared), len(score)).T
        return _LeaveOneOut(compared, np.ascontiguousarray(ranks), min(1.0, max(_MIN_ERROR, error)), skill)


@lru_cache(maxsize=MAX_COMPLETED)
def _scores(count: int) -> Floats:
    """Return the normal scores of `count` ranks."""
    return np.array([_NORMAL.inv_cdf((rank + 0.5) / count) for rank in range(count)])


def _extended(values: Floats) -> tuple[Floats, Floats]:
    """Return sorted values extended by one value below and one above, and the ranks of all.

    The ends are as far from the worst and the best value as those are from the median. The ranks are the same in each
    row.
    """
    count = values.shape[1]
    halves = values[:, [0, count // 2, -1]] / 2  # halves, because an end of huge values would overflow
    worst, middle, best = halves.T[:, :, None]
    with np.errstate(over="ignore"):
        below = np.maximum(-_HUGE / 2, worst + (worst - middle)) * 2
        above = np.minimum(_HUGE / 2, best + (best - middle)) * 2
    ranks = (np.arange(count) + 0.5) / count
    return np.concatenate([below, values, above], axis=1), np.array([-0.5 / count, *ranks, RANK_ABOVE_BEST])


def kernel(squares: Floats, count: int) -> Floats:
    """Return 1 for equal curves, towards 0 for different ones; 0 where no column was compared.

    `squares`: squared distances summed over `count` columns.
    """
    if not count:
        return np.zeros_like(squares)
    found: Floats = np.exp(squares / (-2.0 * BANDWIDTH * BANDWIDTH * count))
    return found


def predict_by_similar_curves(
    curves: CurveTable, aligned: AlignedCurves, live: NDArray[np.bool_]
) -> Predictions | None:
    """Return predictions of the `live` rows from the completed trials; None while too few have completed."""
    memory = aligned.cached("similar curves", lambda: SimilarCurves(len(curves)))
    return memory.predict(curves, aligned, live)
