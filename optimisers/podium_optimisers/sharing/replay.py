"""Simulate ways of scheduling a set of jobs that all arrive at time 0.

`replay_fifo` runs the jobs strictly in order, each on one type until it ends. `replay_rounds` solves the makespan LP
for shares, rounds them to rounds of fixed length, and solves the LP again whenever a job has ended.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.sharing.makespan import makespan_shares
from podium_optimisers.sharing.problem import SharingProblem
from podium_optimisers.sharing.rounds import UNASSIGNED, Priority, RoundScheduler
from podium_optimisers.validation import InputError, require_number, require_numbers


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The end of each job (n,) in seconds, and the number of linear programs solved."""

    ends: Floats
    solved: int = 0

    @property
    def makespan(self) -> float:
        """Return the end of the last job in seconds."""
        return float(self.ends.max())


def replay_fifo(problem: SharingProblem, steps: Floats, rng: np.random.Generator | None = None) -> ReplayResult:
    """Run the jobs in order; no job passes another. O(n (T + log n)).

    The first job in the queue takes GPUs of a type that has enough free ones. With `rng` the type is random, as for a
    scheduler that does not know speeds; without it, the job's fastest type is chosen.
    """
    _check(problem, steps)
    free = problem.gpus.copy()
    ends, now = np.zeros(len(problem.jobs)), 0.0
    running: list[tuple[float, int, int]] = []  # (end, type, width)
    for job, allowed in enumerate(problem.allowed):
        while not (fits := np.flatnonzero(allowed & (free >= problem.width[job]))).size:
            now, gpu_type, width = heapq.heappop(running)
            free[gpu_type] += width
        rates = problem.rate[job, fits]
        chosen = int(fits[rates.argmax()] if rng is None else rng.choice(fits))
        free[chosen] -= problem.width[job]
        ends[job] = now + steps[job] / problem.rate[job, chosen]
        heapq.heappush(running, (float(ends[job]), chosen, int(problem.width[job])))
    return ReplayResult(ends)


def replay_rounds(
    problem: SharingProblem, steps: Floats, seconds: float, priority: Priority = "deficit"
) -> ReplayResult:
    """Run the jobs in rounds of `seconds`.

    A job that ends within a round leaves its GPUs idle until the next round, as in Gavel.
    """
    _check(problem, steps)
    require_number(seconds, "seconds", above=0.0)
    left, ends = steps.copy(), np.zeros(len(problem.jobs))
    alive = np.ones(len(problem.jobs), dtype=np.bool_)
    scheduler = RoundScheduler(problem, priority)
    now, solved = 0.0, 0
    while alive.any():
        share = np.zeros_like(problem.rate)
        share[alive] = makespan_shares(problem.subset(alive), left[alive]).share
        solved += 1
        ended = False
        while not ended:
            assignment = scheduler.next_round(share)
            runs = np.flatnonzero(assignment != UNASSIGNED)
            rates = problem.rate[runs, assignment[runs]]
            done = rates * seconds >= left[runs]
            ends[runs[done]] = now + left[runs[done]] / rates[done]
            left[runs] -= rates * seconds
            alive[runs[done]] = False
            now, ended = now + seconds, bool(done.any())
    return ReplayResult(ends, solved)


def _check(problem: SharingProblem, steps: Floats) -> None:
    """Raise InputError if the work is not one positive number for each job."""
    if steps.shape != (len(problem.jobs),):
        raise InputError("ShapeMismatch", "steps", f"the shape is {steps.shape}; give one value for each job")
    require_numbers(steps, "steps", problem.jobs, above=0.0)
