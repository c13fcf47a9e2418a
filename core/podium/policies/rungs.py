"""Successive halving's rungs, on which `asha` and `hyperband` stand: who is on which rung, with which value.

Jamieson and Talwalkar, AISTATS 2016; Li et al., JMLR 18 (2018) for the brackets, MLSys 2020 for the rule without a
barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.curves.board import Board
from podium.curves.wire import diverged
from podium.domain.snapshot import Point
from podium.policies.base import Admission, Ranking

UNOPENED = -1


def check_halving(eta: float, rungs: int) -> None:
    """ValueError: no halving with these settings of a policy."""
    if not eta > 1.0:
        raise ValueError(f"eta: {eta:g} keeps everybody; give a number above 1")
    if not 1 <= rungs <= 16:
        raise ValueError(f"rungs: {rungs} rungs cannot be; give 1 to 16")


def rung_steps(budget: float, eta: float, count: int) -> tuple[float, ...]:
    """budget * eta^-j, lowest first, without the budget itself: that is a trial's own end."""
    return tuple(budget * eta**-j for j in range(count, 0, -1))


@dataclass(frozen=True, slots=True)
class Rungs:
    """By row: `value[i, k]` is trial i's best at its first evaluation on or above rung k (larger is better, -inf where
    nothing finite, nan where not there yet); `rung[i]` the highest rung it is on, or UNOPENED; `between[i]`: it has
    been trained beyond that evaluation, so it was let go on.
    """

    value: NDArray[np.float64]
    rung: NDArray[np.intp]
    between: NDArray[np.bool_]


def climb(board: Board, steps: Sequence[float]) -> Rungs:
    """O(n) a cycle: a curve is read once a new point."""
    levels, width = tuple(steps), len(steps)

    def read(curve: tuple[Point, ...]) -> list[float]:
        found = [np.nan] * width
        last = 0.0  # step of the evaluation that gave the highest rung
        best, k = -np.inf, 0
        for point in curve:
            if not diverged(point.value):
                best = max(best, board.sign * point.value)
            while k < width and point.step >= levels[k] * (1 - 1e-9):
                found[k], last = best, point.step
                k += 1
        return [*found, last]

    table = board.derive(("rungs", levels), width + 1, read)
    value = table[:, :width].copy()
    rung = np.isfinite(value) | (value == -np.inf)
    highest = rung.sum(axis=1) - 1
    between = (board.step > table[:, width]) | ((highest == UNOPENED) & board.opened)
    return Rungs(value, highest, between)


def top(values: NDArray[np.float64], eta: float, least: int = 0) -> NDArray[np.bool_]:
    """Who of those on one rung (not nan) is in the best 1/eta; ties go to the lower row."""
    there = np.flatnonzero(~np.isnan(values))
    count = max(least if len(there) else 0, int(len(there) / eta))
    chosen = np.zeros(len(values), dtype=bool)
    if count:
        finite = there[values[there] > -np.inf]
        chosen[finite[np.argsort(-values[finite], kind="stable")[:count]]] = True
    return chosen


@dataclass(frozen=True, slots=True)
class Halving:
    """Who may go on, by row: from rungs and promotions to a ranking."""

    found: Rungs
    promoted: NDArray[np.bool_]
    waiting: NDArray[np.bool_]  # at a rung where the promotion is not decided yet
    count: int  # of rungs

    def ranking(self, seen: Board, cut: Admission) -> Ranking:
        """Who is on the way to a rung is not interrupted; then promotions, the highest rung first; then new trials."""
        rung, between, promoted, waiting = self.found.rung, self.found.between, self.promoted, self.waiting
        fresh = (rung == UNOPENED) & ~between
        levels = np.where(between, 0, np.where(fresh, self.count + 1, self.count - rung))
        paused = ~between & ~fresh & ~promoted
        levels[paused] = self.count + 2
        # within a rung by value, as a share of the pool: one huge loss must not make all others look alike
        at = np.where(rung == UNOPENED, -np.inf, self.found.value[np.arange(len(seen)), np.maximum(rung, 0)])
        score = np.searchsorted(np.sort(at), at) / max(1, len(seen))
        stopped = paused & ~waiting if cut is Admission.STOP else None

        def say(row: int) -> tuple[str, str]:
            if between[row]:
                return "OnItsWay", f"is on its way to rung {rung[row] + 1}."
            if fresh[row]:
                return "NotStarted", "has not been trained yet."
            if promoted[row]:
                return "Promoted", f"is in the best part of rung {rung[row]}."
            if waiting[row]:
                return "RungIncomplete", f"waits until all of its bracket have come to rung {rung[row]}."
            return "PausedAtRung", f"is not in the best part of rung {rung[row]}."

        return Ranking(seen, np.where(between | fresh, 0.0, score), levels, say, paused, stopped)
