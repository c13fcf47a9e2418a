"""Successive halving's rungs, on which `asha` and `hyperband` stand: who is on which rung, with which value.

Jamieson and Talwalkar, AISTATS 2016; Li et al., JMLR 18 (2018) for the brackets, MLSys 2020 for the rule without a
barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import Board
from podium_core.curves.non_finite import diverged
from podium_core.curves.thinning import came_at
from podium_core.domain.snapshot import JobView, Point
from podium_core.policies.base import Admission, Ranking

UNOPENED = -1
# Seconds by which what is done on a GPU may be ahead of what the planner knows: an agent writes values every few
# seconds, a cycle and a suspension take some. Who has trained on for longer was let.
UNSEEN = 30.0
MOST_ETA = 1000.0  # its power of 16 rungs must stay a number, and a bracket needs more trials than that


def check_halving(eta: float, rungs: int) -> None:
    """ValueError: no halving with these settings of a policy."""
    if not eta > 1.0:
        raise ValueError(f"eta: {eta:g} keeps everybody; give a number above 1")
    if eta > MOST_ETA:
        raise ValueError(f"eta: {eta:g} promotes nobody; give {MOST_ETA:g} at most")
    if not 1 <= rungs <= 16:
        raise ValueError(f"rungs: {rungs} rungs cannot be; give 1 to 16")


def rung_steps(budget: float, eta: float, count: int) -> tuple[float, ...]:
    """budget * eta^-j, lowest first, without the budget itself: that is a trial's own end."""
    return tuple(budget * eta**-j for j in range(count, 0, -1))


@dataclass(frozen=True, slots=True)
class Climb:
    """By row and rung: `value`: a trial's best at its first evaluation on or above the rung (larger is better, -inf
    where nothing finite, nan where not there yet); `time`: when that was printed (inf where not there yet).
    `passed`: it has trained on for so long since that somebody let it, whatever else is said by values that may have
    been thinned since, or of trials that are gone. `beyond[i]`: it has been trained beyond the evaluation that gave its
    highest rung, or was opened and stands on none.
    """

    value: NDArray[np.float64]
    time: NDArray[np.float64]
    passed: NDArray[np.bool_]
    beyond: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rungs:
    """By row: `value` as the climb has it; `rung[i]`: where trial i stands, or the last rung that it was let past, or
    UNOPENED; `at[i]`: its value there, -inf where it has none; `held[i]`: it was not let past that rung, however far it
    has come; `between[i]`: it was let go on from there and is on its way.
    """

    value: NDArray[np.float64]
    rung: NDArray[np.intp]
    at: NDArray[np.float64]
    held: NDArray[np.bool_]
    between: NDArray[np.bool_]


def climb(board: Board, steps: Sequence[float], freezes: bool) -> Climb:
    """O(n) a cycle: a curve is read once a new point. `freezes`: trials can be suspended; others train on where nobody
    wants their GPU, so that nobody need have let them.
    """
    levels, width = tuple(steps), len(steps)

    def read(curve: tuple[Point, ...]) -> list[float]:
        found, times = [np.nan] * width, [np.inf] * width
        last = 0.0  # step of the evaluation that gave the highest rung
        best, k = -np.inf, 0
        for place, point in enumerate(curve):
            if not diverged(point.value):
                best = max(best, board.sign * point.value)
            while k < width and point.step >= levels[k] * (1 - 1e-9):
                last, times[k] = came_at(curve, place, levels[k])
                found[k] = best
                k += 1
        latest = curve[-1].time if curve else 0.0
        return [*found, *times, *(latest - time > UNSEEN for time in times), last]

    table = board.derive(("rungs", levels), 3 * width + 1, read).copy(order="F")  # rungs are read one by one
    value, time, passed = (table[:, k * width : (k + 1) * width] for k in range(3))
    beyond = np.where(np.isnan(value[:, 0]), board.opened, board.step > table[:, -1])
    return Climb(value, time, (passed > 0.0) & freezes, beyond)


def stand(found: Climb, let: NDArray[np.bool_]) -> Rungs:
    """Where each trial stands. `let`: by row and rung, whether a trial that has come there was ever let go on.

    That a trial is beyond a rung does not say that somebody let it: values may come faster than they are looked at. It
    stands on the lowest rung that it was not let past.
    """
    there = ~np.isnan(found.value)
    stuck = there & ~(let | found.passed)
    held = np.any(stuck, axis=1)
    rung = np.count_nonzero(there, axis=1) - 1
    for k in reversed(range(stuck.shape[1])):
        rung[stuck[:, k]] = k
    at = np.where(rung == UNOPENED, -np.inf, found.value[np.arange(len(rung)), np.maximum(rung, 0)])
    return Rungs(found.value, rung, at, held, found.beyond & ~held)


def places(came: int, eta: float, least: int) -> int:
    """How many of those that came to a rung go on."""
    return max(least if came else 0, int(came / eta))


def top(values: NDArray[np.float64], eta: float, least: int = 0) -> NDArray[np.bool_]:
    """Who of those on one rung (not nan) is in the best 1/eta; ties go to the lower row."""
    there = np.flatnonzero(~np.isnan(values))
    count = places(len(there), eta, least)
    chosen = np.zeros(len(values), dtype=bool)
    if not count:
        return chosen
    finite = there[values[there] > -np.inf]
    if len(finite) <= count:
        chosen[finite] = True
        return chosen
    last = np.partition(values[finite], -count)[-count]
    chosen[finite] = values[finite] > last
    ties = finite[values[finite] == last]
    chosen[ties[: count - np.count_nonzero(chosen)]] = True
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
        score = np.searchsorted(np.sort(self.found.at), self.found.at) / max(1, len(seen))
        stopped = paused & ~waiting if cut is Admission.STOP else None

        def say(row: int) -> tuple[str, str]:
            if between[row]:
                return "AdvancingToRung", f"is on its way to rung {rung[row] + 1}."
            if fresh[row]:
                return "NotStarted", "has not been trained yet."
            if promoted[row]:
                return "Promoted", f"is in the best part of rung {rung[row]}."
            if waiting[row]:
                return "RungIncomplete", f"waits until all of its bracket have come to rung {rung[row]}."
            return "PausedAtRung", f"is not in the best part of rung {rung[row]}."

        return Ranking(seen, np.where(between | fresh, 0.0, score), levels, say, paused, stopped)


def ranked(job: JobView, seen: Board, halving: Halving, stop: bool) -> Ranking:
    """`stop`: who may not go on ends; else it waits, and a search ends with a whole trial all the same."""
    if stop:
        return halving.ranking(seen, Admission.STOP)
    return _finished(job, seen, halving).ranking(seen, Admission.WAIT)


def _finished(job: JobView, seen: Board, halving: Halving) -> Halving:
    """Where nobody goes on, nobody can come and nobody was trained to its end: the best of the highest rung on which
    one of finite value stands goes on, so that a search of few trials, or of which the best failed, ends with a whole
    one.

    It stays the one while it trains: it stands where it was not let past, and nobody passes it there but who is pinned.
    """
    found = halving.found
    if len(seen) < job.max_trials or (seen.complete & (seen.best > -np.inf)).any():
        return halving
    live = ~seen.done
    if (live & (halving.promoted | halving.waiting | found.between | (found.rung == UNOPENED))).any():
        return halving
    able = np.flatnonzero(live & (found.at > -np.inf))
    if not len(able):
        return halving
    high = able[found.rung[able] == found.rung[able].max()]
    promoted = halving.promoted.copy()
    promoted[high[np.argmax(found.at[high])]] = True
    return replace(halving, promoted=promoted)
