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

from podium_core.curves.aligned_curves import PER_DOUBLING, RUNGS, EqualTraining
from podium_core.curves.curve_table import Board, Floats, moved

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
    total: float  # of all chances
    count: int  # of those that are told


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

    def place(self, value: float) -> float:
        """The share of the completed trials below it, between two of them by its distance to either; who has shown
        nothing finite is at the end.
        """
        values, places = self.values, self.places
        if not value >= values[0]:
            return places[0]
        at = bisect_right(values, value) - 1
        if at >= len(values) - 1 or value == (below := values[at]):
            return places[at]
        return min(places[at + 1], places[at] + self.slopes[at] * (value - below))


def columns(best: Floats) -> list[Column | None]:
    """Of the completed trials' best values (completed, rungs), one a rung; None where they do not differ there. Rungs
    to which as many have come are done at once: a call for each would cost more than the numbers.
    """
    found: list[Column | None] = [None] * best.shape[1]
    ordered = np.sort(np.where(best > -np.inf, best, np.nan).T, axis=1)  # who has shown nothing is last
    counts = np.count_nonzero(~np.isnan(ordered), axis=1)
    highest = ordered[np.arange(len(ordered)), counts - 1]
    differ = (counts >= LEAST - 1) & (ordered[:, 0] != highest)
    for count in set(counts[differ].tolist()):
        rungs = np.flatnonzero(differ & (counts == count))
        values, places = _extended(ordered[rungs, :count])
        mine = np.fmax(best[:, rungs].T, -_HUGE)
        at = [each.searchsorted(own, side="right") for each, own in zip(values, mine, strict=True)]
        own = places[np.maximum(np.array(at) - 1, 0)]
        squares = own[:, :, None] - own[:, None, :]
        squares *= squares
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            slopes = np.diff(places) / np.diff(values, axis=1)
        told = places.tolist()
        for rung, *facts in zip(rungs.tolist(), values.tolist(), slopes.tolist(), own, squares, strict=True):
            found[rung] = Column(facts[0], told, facts[1], facts[2], facts[3])
    return found


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
        self._facts: tuple[bytes, bytes] | None = None
        self._score = np.zeros(0)  # normal scores of their final ranks
        self._blind = 1.0  # variance of a score, told by the mean of the others
        self._columns: list[Column | None] = []
        self._rungs: dict[int, _Rung] = {}
        self._skill = np.zeros(RUNGS)  # of those that are known
        self._seen = np.full(rows, -1)

    def move(self, source: Sequence[int]) -> None:
        """The board's rows are others from now on (`Movable`). Facts name rows: unless all stay, all begins anew."""
        if list(source[: len(self.chance)]) != list(range(len(self.chance))):
            self._facts = None
        self.chance, self._seen = moved(self.chance, source, 0.0), moved(self._seen, source, -1)

    def answer(self, seen: Board, table: EqualTraining, live: NDArray[np.bool_]) -> Answers | None:
        """None while too few have completed."""
        completed = (seen.complete & (seen.best > -np.inf)).nonzero()[0]
        if len(completed) < LEAST:
            return None
        facts = (completed.tobytes(), seen.version[completed].tobytes())
        if facts != self._facts:
            self._begin(seen, table, completed)
            self._facts = facts
        question = ("alike", facts, live.tobytes())
        if question in table.derived:  # asked before
            return cast(Answers | None, table.derived[question])
        told = live & (table.rung >= 0)
        for row in (told & (self._seen != table.content)).nonzero()[0].tolist():
            self.chance[row] = self._ask(table, row, int(table.rung[row]))
        self._seen[told] = table.content[told]
        answers = None
        if np.count_nonzero(told):
            skills = self._skill[table.rung[told]].tolist()
            chance, skill = np.where(told, self.chance, 0.0), math.fsum(skills) / len(skills)
            answers = Answers(told, chance, skill, float(chance.sum()), len(skills))
        table.derived[question] = answers
        return answers

    def _begin(self, seen: Board, table: EqualTraining, completed: NDArray[np.intp]) -> None:
        order = completed[np.argsort(seen.best[completed], kind="stable")]
        if len(order) > MOST:
            order = order[np.linspace(0, len(order) - 1, MOST).astype(np.intp)]
        self._score = score = _scores(len(order))
        self._blind = float((score**2).mean()) * (len(score) / (len(score) - 1)) ** 2
        self._columns, self._rungs = columns(table.best[order]), {}
        self._seen[:] = -1

    def _ask(self, table: EqualTraining, row: int, rung: int) -> float:
        """The chance of one row. Floats of Python: it is one row mostly, and numpy's calls would cost more."""
        there = self._rungs.get(rung)
        if there is None:
            there = self._rungs[rung] = self._measure(rung)
            self._skill[rung] = there.skill
        best = table.best[row].tolist()
        mine = [column.place(best[c]) for c, column in there.columns.items()]
        weight = kernel(((there.places - mine) ** 2).sum(axis=1), len(mine))
        total = float(weight.sum())
        middle = float((weight * self._score).sum()) / (total + KAPPA)
        spread = math.sqrt((total * there.error + KAPPA) / (total + KAPPA))
        ahead = (middle - float(self._score[-1])) / spread
        return _LEAST_CHANCE + 0.5 * math.erfc(-ahead / math.sqrt(2.0))

    def _measure(self, rung: int) -> _Rung:
        """What the completed trials would have told of each other at this rung."""
        wanted = range(rung, max(-1, rung - BACK), -STEP)
        found = {c: column for c in wanted if (column := self._columns[c]) is not None}
        score = self._score
        squares = np.zeros((len(score), len(score)))
        for column in found.values():
            squares += column.squares
        weight = kernel(squares, len(found))
        np.fill_diagonal(weight, 0.0)
        total = weight.sum(axis=1)
        off = (score - (weight * score).sum(axis=1) / (total + KAPPA)) ** 2
        known = total / (total + KAPPA)
        error = float((known * off).sum()) / max(float(known.sum()), _LEAST_CHANCE) / self._blind
        skill = max(0.0, 1.0 - float(off.sum()) / len(off) / self._blind)
        places = np.array([column.own for column in found.values()]).reshape(len(found), len(score)).T
        return _Rung(found, np.ascontiguousarray(places), min(1.0, max(_LEAST_ERROR, error)), skill)


@lru_cache(maxsize=MOST)
def _scores(count: int) -> Floats:
    """Normal scores of the ranks of so many."""
    return np.array([_NORMAL.inv_cdf((rank + 0.5) / count) for rank in range(count)])


def _extended(values: Floats) -> tuple[Floats, Floats]:
    """Rows of sorted values, with an end below and one above, as far off as the worst and the best are from the middle
    one; and the places of all, the same in each row.
    """
    count = values.shape[1]
    halves = values[:, [0, count // 2, -1]] / 2  # where the values are huge an end is infinite on the way
    worst, middle, best = halves.T[:, :, None]
    with np.errstate(over="ignore"):
        below = np.maximum(-_HUGE / 2, worst + (worst - middle)) * 2
        above = np.minimum(_HUGE / 2, best + (best - middle)) * 2
    places = (np.arange(count) + 0.5) / count
    return np.concatenate([below, values, above], axis=1), np.array([-0.5 / count, *places, AHEAD])


def kernel(squares: Floats, columns: int) -> Floats:
    """1 for equal curves, towards 0 for unlike ones; 0 where nothing was compared. `squares`: sums over the columns."""
    if not columns:
        return np.zeros_like(squares)
    found: Floats = np.exp(squares / (-2.0 * WIDTH * WIDTH * columns))
    return found


def alike(seen: Board, table: EqualTraining, live: NDArray[np.bool_]) -> Answers | None:
    """What the completed trials of this board tell of those that are `live`; None while too few have completed."""
    memory = table.keep("alike", lambda: Alike(len(seen)))
    return memory.answer(seen, table, live)
