"""Will a trial end above the best completed one? Told by the completed trials whose curves looked like its own.

Called by the `envelope` policy as far as the early order of completed trials was not their final order: then a value
says little, and the company that a curve keeps may say more. Kernel regression (Nadaraya 1964, Watson 1964) of the
normal score of a completed trial's final rank on its curve over the last three doublings of training, each value as its
place among the completed trials' values at that step. Where nobody completed looks alike, the answer is the prior: as
any of them. How much the answers are worth is measured by leaving each completed trial out.

A memory of what was computed: each row depends on its own curve and on the completed trials, on nothing else, and not
on what was computed with it. A new value costs O(completed), a completed trial all rows anew; at most `MOST` are asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from podium.curves.board import Board, Floats
from podium.curves.equal_training import PER_DOUBLING, EqualTraining

LEAST = 4  # completed trials before anything is said
MOST = 64  # completed trials that are asked, evenly spaced over their final ranks
BACK = 3 * PER_DOUBLING  # rungs that are compared, every `STEP`-th
STEP = 2
WIDTH = 0.1  # of the kernel, in shares of the completed trials
KAPPA = 0.3  # a trial alike counts as 1, what any trial may become as so much
AHEAD = 1.25  # the place of who is as far above the best as that is above the middle
_LEAST_ERROR = 0.01  # of the variance of normal scores
_LEAST_CHANCE = 1e-6
_HUGE = float(np.finfo(np.float64).max)
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Answers:
    """By row; copies. `chance`: to end above the best completed trial, 0 where not `told`. `skill`: 0 (no better than
    the prior) to 1, by leaving out, at the rungs where those stand that are told.
    """

    told: NDArray[np.bool_]
    chance: Floats
    skill: float


@dataclass(frozen=True, slots=True)
class _Rung:
    """The completed trials as they were at one rung: `places` (completed, columns)."""

    columns: Sequence[int]
    places: Floats
    error: float  # variance of the score of a trial, given one that is alike
    skill: float


class Alike:
    """The memory of one board for one horizon, for one set of completed trials."""

    def __init__(self, rows: int) -> None:
        self.chance = np.zeros(rows)
        self._completed: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._facts: tuple[bytes, bytes] | None = None
        self._score = np.zeros(0)  # normal scores of their final ranks
        self._scales: dict[int, tuple[Floats, Floats]] = {}
        self._rungs: dict[int, _Rung] = {}
        self._seen = np.full(rows, -1)

    def answer(self, seen: Board, table: EqualTraining, live: NDArray[np.bool_]) -> Answers | None:
        """None while too few have completed."""
        completed = np.flatnonzero(seen.complete & (seen.best > -np.inf))
        if len(completed) < LEAST:
            return None
        facts = (completed.tobytes(), seen.version[completed].tobytes())
        if facts != self._facts:
            self._begin(seen, completed)
            self._facts = facts
        fresh = np.flatnonzero(live & (self._seen != seen.version) & (table.rung >= 0))
        for rung in sorted(set(table.rung[fresh].tolist())):
            self._ask(table, fresh[table.rung[fresh] == rung], rung)
        self._seen[fresh] = seen.version[fresh]
        told = live & (table.rung >= 0)
        if not told.any():
            return None
        skills = [self._rungs[rung].skill for rung in table.rung[told].tolist()]
        return Answers(told, np.where(told, self.chance, 0.0), math.fsum(skills) / len(skills))

    def _begin(self, seen: Board, completed: NDArray[np.intp]) -> None:
        order = completed[np.argsort(seen.best[completed], kind="stable")]
        if len(order) > MOST:
            order = order[np.linspace(0, len(order) - 1, MOST).astype(np.intp)]
        self._completed = order
        self._score = np.array([_NORMAL.inv_cdf((rank + 0.5) / len(order)) for rank in range(len(order))])
        self._scales, self._rungs = {}, {}
        self._seen[:] = -1

    def _ask(self, table: EqualTraining, rows: NDArray[np.intp], rung: int) -> None:
        there = self._rungs.get(rung)
        if there is None:
            there = self._rungs[rung] = self._measure(table, rung)
        weight = kernel(self._places(table, rows, there.columns), there.places)
        total = weight.sum(axis=1)
        middle = (weight * self._score).sum(axis=1) / (total + KAPPA)
        spread = np.sqrt((total * there.error + KAPPA) / (total + KAPPA))
        ahead = (middle - self._score[-1]) / spread
        self.chance[rows] = [_LEAST_CHANCE + 0.5 * math.erfc(-z / math.sqrt(2.0)) for z in ahead.tolist()]

    def _measure(self, table: EqualTraining, rung: int) -> _Rung:
        """What the completed trials would have told of each other at this rung."""
        columns = [c for c in range(rung, max(-1, rung - BACK), -STEP) if self._scale(table, c)]
        places = self._places(table, self._completed, columns)
        weight = kernel(places, places)
        np.fill_diagonal(weight, 0.0)
        total, score = weight.sum(axis=1), self._score
        off = (score - (weight * score).sum(axis=1) / (total + KAPPA)) ** 2
        known = total / (total + KAPPA)
        blind = float((score**2).mean()) * (len(score) / (len(score) - 1)) ** 2  # of the mean of the others
        error = float((known * off).sum()) / max(float(known.sum()), _LEAST_CHANCE) / blind
        skill = max(0.0, 1.0 - float(off.mean()) / blind)
        return _Rung(columns, places, min(1.0, max(_LEAST_ERROR, error)), skill)

    def _scale(self, table: EqualTraining, column: int) -> bool:
        """Whether the completed trials differ at this rung; if so their values and places there are known from now."""
        if column not in self._scales:
            values = table.best[self._completed, column]
            values = np.sort(values[values > -np.inf])
            if len(values) < LEAST - 1 or values[0] == values[-1]:
                return False
            self._scales[column] = _extended(values)
        return True

    def _places(self, table: EqualTraining, rows: NDArray[np.intp], columns: Sequence[int]) -> Floats:
        """(rows, columns): the share of the completed trials below each value; who showed none finite is at the end."""
        found = np.zeros((len(rows), len(columns)))
        for i, column in enumerate(columns):
            values, places = self._scales[column]
            found[:, i] = np.interp(np.fmax(table.best[rows, column], -_HUGE), values, places)
        return found


def _extended(values: Floats) -> tuple[Floats, Floats]:
    """Sorted values and their places, with an end below and one above, as far off as the worst and the best are from
    the middle one.
    """
    count = len(values)
    # halves, and Python's own floats: where the values are huge an end is infinite on the way, and nobody is warned
    worst, middle, best = (float(value) / 2 for value in (values[0], values[count // 2], values[-1]))
    below = max(-_HUGE / 2, worst + (worst - middle)) * 2
    above = min(_HUGE / 2, best + (best - middle)) * 2
    places = (np.arange(count) + 0.5) / count
    return np.array([below, *values, above]), np.array([-0.5 / count, *places, AHEAD])


def kernel(these: Floats, those: Floats) -> Floats:
    """(these, those): 1 for equal curves, towards 0 for unlike ones. Each entry is the same whatever else is asked."""
    if not these.shape[1]:
        return np.zeros((len(these), len(those)))
    squares = ((these[:, None, :] - those) ** 2).mean(axis=2)
    found: Floats = np.exp(squares / (-2.0 * WIDTH * WIDTH))
    return found


def alike(seen: Board, table: EqualTraining, live: NDArray[np.bool_]) -> Answers | None:
    """What the completed trials of this board tell of those that are `live`; None while too few have completed."""
    memory = seen.keep(("alike", table.horizon), lambda: Alike(len(seen)))
    return memory.answer(seen, table, live)
