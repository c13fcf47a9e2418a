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

At most MAX_COMPLETED completed trials are used. `similar_curves_cache.py` applies the formulas to a job.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from podium_core.curves.alignment import PER_DOUBLING
from podium_core.curves.statistics import Floats, Rows, gaussian_kernel, normal_scores

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


def final_order(finals: Floats) -> Rows:
    """Return the completed trials that are used, by their final values, worst first."""
    order = np.argsort(finals, kind="stable")
    if len(order) > MAX_COMPLETED:
        order = order[np.linspace(0, len(order) - 1, MAX_COMPLETED).astype(np.intp)]
    return order


@dataclass(frozen=True, slots=True)
class RankColumn:
    """Completed trials at one column, for ranking other values among them.

    It has the sorted values and their ranks, with one virtual value below and one above, and the slope between
    neighbours. It also has each completed trial's own rank, and its squared distance to each other trial.
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
    ranked: list[RankColumn | None] = [None] * best.shape[1]
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
            ranked[column] = RankColumn(parts[0], rank_list, parts[1], parts[2], parts[3])
    return ranked


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


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Skill of the completed trials in predicting each other at one column.

    `columns`: the compared columns. `ranks`: r_j(c), (completed, columns). `error`: e, relative to the error of a
    prediction by the mean of the others. `skill`: leave-one-out skill.
    """

    columns: Mapping[int, RankColumn]
    ranks: Floats
    error: float
    skill: float


def leave_one_out(columns: Sequence[RankColumn | None], column: int, completed: int) -> LeaveOneOut:
    """Predict each of the `completed` trials at this column from the others."""
    wanted = range(column, max(-1, column - COMPARED), -STEP)
    compared = {c: ranked for c in wanted if (ranked := columns[c]) is not None}
    score = normal_scores(completed)
    prior_error = float((score**2).mean()) * (completed / (completed - 1)) ** 2
    squares = np.zeros((completed, completed))
    for ranked in compared.values():
        squares += ranked.squares
    weight = gaussian_kernel(squares, BANDWIDTH, len(compared))
    np.fill_diagonal(weight, 0.0)
    total = weight.sum(axis=1)
    off = (score - (weight * score).sum(axis=1) / (total + KAPPA)) ** 2
    known = total / (total + KAPPA)
    error = float((known * off).sum()) / max(float(known.sum()), _MIN_CHANCE) / prior_error
    skill = max(0.0, 1.0 - float(off.sum()) / len(off) / prior_error)
    ranks = np.array([ranked.own for ranked in compared.values()]).reshape(len(compared), completed).T
    return LeaveOneOut(compared, np.ascontiguousarray(ranks), min(1.0, max(_MIN_ERROR, error)), skill)


def chance_above_best(best: Sequence[float], others: LeaveOneOut) -> float:
    """Return chance_i of a trial with these best values by column.

    `others`: the completed trials at its last column. The function uses Python floats, because it mostly gets one
    trial, and numpy calls cost more.
    """
    own_ranks = [ranked.rank(best[c]) for c, ranked in others.columns.items()]
    weight = gaussian_kernel(((others.ranks - own_ranks) ** 2).sum(axis=1), BANDWIDTH, len(own_ranks))
    score = normal_scores(len(weight))
    total = float(weight.sum())
    mean = float((weight * score).sum()) / (total + KAPPA)
    spread = math.sqrt((total * others.error + KAPPA) / (total + KAPPA))
    ahead = (mean - float(score[-1])) / spread
    return _MIN_CHANCE + 0.5 * math.erfc(-ahead / math.sqrt(2.0))
