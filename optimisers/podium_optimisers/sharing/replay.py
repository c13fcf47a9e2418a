"""What a way of scheduling makes of a set of jobs that are all there at 0, in virtual time. Called by the benchmark.

`fifo`: strictly in order, each job on one type until it ends, no job passes another. `in_rounds`: shares by the
makespan LP, rounded into rounds of fixed length, solved again whenever a job has ended.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from podium_optimisers.queueing.checks import InputError, require, require_all
from podium_optimisers.sharing.makespan import makespan_shares
from podium_optimisers.sharing.problem import Floats, SharingProblem
from podium_optimisers.sharing.rounds import NOWHERE, Priority, Rounds


@dataclass(frozen=True, slots=True)
class Replayed:
    """`ends` (n,): seconds until each job was done; `solved`: how many linear programs that took."""

    ends: Floats
    solved: int = 0

    @property
    def makespan(self) -> float:
        return float(self.ends.max())


def fifo(problem: SharingProblem, steps: Floats, rng: np.random.Generator | None = None) -> Replayed:
    """The head of the queue takes GPUs of a type that has enough free: a random one (that is how a scheduler acts that
    does not know of speeds), without `rng` the one on which it is fastest. O(n (T + log n)).
    """
    _check(problem, steps)
    free = problem.gpus.copy()
    ends, now = np.zeros(len(problem.jobs)), 0.0
    running: list[tuple[float, int, int]] = []  # (end, type, width)
    for job, allowed in enumerate(problem.allowed):
        while not (fits := np.flatnonzero(allowed & (free >= problem.width[job]))).size:
            now, type_, width = heapq.heappop(running)
            free[type_] += width
        rates = problem.rate[job, fits]
        chosen = int(fits[rates.argmax()] if rng is None else rng.choice(fits))
        free[chosen] -= problem.width[job]
        ends[job] = now + steps[job] / problem.rate[job, chosen]
        heapq.heappush(running, (float(ends[job]), chosen, int(problem.width[job])))
    return Replayed(ends)


def in_rounds(problem: SharingProblem, steps: Floats, seconds: float, priority: Priority = "owed") -> Replayed:
    """Rounds of `seconds`; a job that ends within a round leaves its GPUs idle until the next, as in Gavel."""
    _check(problem, steps)
    require(seconds, "seconds", above=0.0)
    left, ends = steps.copy(), np.zeros(len(problem.jobs))
    alive = np.ones(len(problem.jobs), dtype=np.bool_)
    dealer = Rounds(problem, priority)
    now, solved = 0.0, 0
    while alive.any():
        share = np.zeros_like(problem.rate)
        share[alive] = makespan_shares(problem.only(alive), left[alive]).share
        solved += 1
        ended = False
        while not ended:
            place = dealer.next(share)
            runs = np.flatnonzero(place != NOWHERE)
            rate = problem.rate[runs, place[runs]]
            done = rate * seconds >= left[runs]
            ends[runs[done]] = now + left[runs[done]] / rate[done]
            left[runs] -= rate * seconds
            alive[runs[done]] = False
            now, ended = now + seconds, bool(done.any())
    return Replayed(ends, solved)


def _check(problem: SharingProblem, steps: Floats) -> None:
    if steps.shape != (len(problem.jobs),):
        raise InputError("ShapeMismatch", "steps", f"has the shape {steps.shape}; give one for each job")
    require_all(steps, "steps", problem.jobs, above=0.0)
