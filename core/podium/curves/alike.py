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
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import cast

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
class Column:
    """The completed trials as they were at one rung: sorted values and the place of each, with an end below and one
    above; the slope from each to the next; the place of each completed trial, and its squared distance to each other.
    """

    values: Sequence[float]
    places: Sequence[float]
    slopes: Sequence[float]
    own: Floats
    squares: Floats

    @classmethod
    def of(cls, best: Floats) -> Column | None:
        """Of the completed trials' best values at this rung; None where they do not differ there."""
        told = np.sort(best[best > -np.inf])
        if len(told) < LEAST - 1 or told[0] == told[-1]:
            return None
        values, places = _extended(told)
        own = places[np.maximum(np.searchsorted(values, np.fmax(best, -_HUGE), side="right") - 1, 0)]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            slopes = np.diff(places) / np.diff(values)
        return cls(values.tolist(), places.tolist(), slopes.tolist(), own, (own[:, None] - own) ** 2)

    def place(self, value: float) -> float:
        """The share of the completed trials below it, between two of them by its distance to either; who has shown
        nothing finite is at the end.
        """
        values, places = self.values, self.places
        at = bisect_right(values, value) - 1
        if at < 0 or math.isnan(value):
            return places[0]
        if at >= len(values) - 1 or value == values[at]:
            return places[at]
        return min(places[at + 1], places[at] + self.slopes[at] * (value - values[at]))


@dataclass(frozen=True, slots=True)
class _Rung:
    """What the completed trials would have told of each other over the columns that are compared at one rung."""

    columns: Mapping[int, Column]
    places: Floats  # (completed, columns)
    error: float  # variance of the score of a trial, given one that is alike
    skill: float


class Alike:
    """The memory of one board for one horizon, for one set of completed trials."""

    def __init__(self, rows: int) -> None:
        self.chance = np.zeros(rows)
        self._completed: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._facts: tuple[bytes, bytes] | None = None
        self._score = np.zeros(0)  # normal scores of their final ranks
        self._columns: dict[int, Column | None] = {}
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
        question = ("alike", facts, live.tobytes())
        if question in table.derived:  # asked before
            return cast(Answers | None, table.derived[question])
        told = live & (table.rung >= 0)
        for row in np.flatnonzero(told & (self._seen != table.content)).tolist():
            self.chance[row] = self._ask(table, row, int(table.rung[row]))
        self._seen[told] = table.content[told]
        answers = None
        if told.any():
            skills = [self._rungs[rung].skill for rung in table.rung[told].tolist()]
            answers = Answers(told, np.where(told, self.chance, 0.0), math.fsum(skills) / len(skills))
        table.derived[question] = answers
        return answers

    def _begin(self, seen: Board, completed: NDArray[np.intp]) -> None:
        order = completed[np.argsort(seen.best[completed], kind="stable")]
        if len(order) > MOST:
            order = order[np.linspace(0, len(order) - 1, MOST).astype(np.intp)]
        self._completed = order
        self._score = _scores(len(order))
        self._columns, self._rungs = {}, {}
        self._seen[:] = -1

    def _ask(self, table: EqualTraining, row: int, rung: int) -> float:
        """The chance of one row. Floats of Python: it is one row mostly, and numpy's calls would cost more."""
        there = self._rungs.get(rung)
        if there is None:
            there = self._rungs[rung] = self._measure(table, rung)
        best = table.best[row, list(there.columns)].tolist()
        mine = [column.place(value) for value, column in zip(best, there.columns.values(), strict=True)]
        weight = kernel(((there.places - mine) ** 2).sum(axis=1), len(mine))
        total = float(weight.sum())
        middle = float((weight * self._score).sum()) / (total + KAPPA)
        spread = math.sqrt((total * there.error + KAPPA) / (total + KAPPA))
        ahead = (middle - float(self._score[-1])) / spread
        return _LEAST_CHANCE + 0.5 * math.erfc(-ahead / math.sqrt(2.0))

    def _measure(self, table: EqualTraining, rung: int) -> _Rung:
        """What the completed trials would have told of each other at this rung."""
        wanted = range(rung, max(-1, rung - BACK), -STEP)
        found = {c: column for c in wanted if (column := self._column(table, c)) is not None}
        score = self._score
        squares = np.zeros((len(score), len(score)))
        for column in found.values():
            squares += column.squares
        weight = kernel(squares, len(found))
        np.fill_diagonal(weight, 0.0)
        total = weight.sum(axis=1)
        off = (score - (weight * score).sum(axis=1) / (total + KAPPA)) ** 2
        known = total / (total + KAPPA)
        blind = float((score**2).mean()) * (len(score) / (len(score) - 1)) ** 2  # of the mean of the others
        error = float((known * off).sum()) / max(float(known.sum()), _LEAST_CHANCE) / blind
        skill = max(0.0, 1.0 - float(off.mean()) / blind)
        places = np.array([column.own for column in found.values()]).reshape(len(found), len(score)).T
        return _Rung(found, np.ascontiguousarray(places), min(1.0, max(_LEAST_ERROR, error)), skill)

    def _column(self, table: EqualTraining, column: int) -> Column | None:
        """None where the completed trials do not differ at this rung."""
        if column not in self._columns:
            self._columns[column] = Column.of(table.best[self._completed, column])
        return self._columns[column]


@lru_cache(maxsize=MOST)
def _scores(count: int) -> Floats:
    """Normal scores of the ranks of so many."""
    return np.array([_NORMAL.inv_cdf((rank + 0.5) / count) for rank in range(count)])


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


def kernel(squares: Floats, columns: int) -> Floats:
    """1 for equal curves, towards 0 for unlike ones; 0 where nothing was compared. `squares`: sums over the columns."""
    if not columns:
        return np.zeros_like(squares)
    found: Floats = np.exp(squares / (-2.0 * WIDTH * WIDTH * columns))
    return found


def alike(seen: Board, table: EqualTraining, live: NDArray[np.bool_]) -> Answers | None:
    """What the completed trials of this board tell of those that are `live`; None while too few have completed."""
    memory = seen.keep(("alike", table.horizon), lambda: Alike(len(seen)))
    return memory.answer(seen, table, live)
