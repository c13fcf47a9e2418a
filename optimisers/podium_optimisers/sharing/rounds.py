"""Round time shares to a schedule of rounds: the mechanism of Gavel (OSDI 2020, section 5).

Time is divided into rounds. In each round, pairs of job and type are assigned by priority, the highest first, while
GPUs of the type are free and the job is unassigned. Pairs that were skipped get a higher priority in the next round.
There are two priorities. "ratio" is Gavel's: share / part of the rounds received. "deficit" is rounds promised minus
rounds received; it never makes a job with a share of 1 wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.arrays import Floats, Ints
from podium_optimisers.sharing.problem import SharingProblem
from podium_optimisers.sharing.shares import TimeShares
from podium_optimisers.validation import require_count

UNASSIGNED = -1
NEGLIGIBLE = 1e-9  # smaller shares count as 0

Priority = Literal["deficit", "ratio"]


@dataclass(slots=True)
class RoundScheduler:
    """A scheduler of rounds; the shares may change between rounds.

    `promised` and `received` (n, T): rounds so far.
    """

    problem: SharingProblem
    priority: Priority = "deficit"
    promised: Floats = field(init=False)
    received: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.promised = np.zeros(self.problem.rate.shape)
        self.received = np.zeros(self.problem.rate.shape, dtype=np.int64)

    def next_round(self, share: Floats) -> Ints:
        """Return the type of each job in the next round (n,), or UNASSIGNED, for shares (n, T).

        O(n T log(n T)).
        """
        self.promised += share
        jobs, types = np.nonzero(share > NEGLIGIBLE)
        order = np.lexsort((types, jobs, -share[jobs, types], -self._priorities()[jobs, types]))
        assignment = np.full(len(self.problem.jobs), UNASSIGNED, dtype=np.int64)
        free, width = self.problem.gpus.tolist(), self.problem.width.tolist()
        for job, gpu_type in zip(jobs[order].tolist(), types[order].tolist(), strict=True):
            if assignment[job] == UNASSIGNED and width[job] <= free[gpu_type]:
                assignment[job] = gpu_type
                free[gpu_type] -= width[job]
        runs = np.flatnonzero(assignment != UNASSIGNED)
        self.received[runs, assignment[runs]] += 1
        return assignment

    def _priorities(self) -> Floats:
        """Return the priority of each pair (n, T)."""
        if self.priority == "deficit":
            return self.promised - self.received
        never = self.received == 0
        return np.where(never, np.inf, self.promised / np.where(never, 1, self.received))


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """A schedule of rounds. `assignment` (rounds, n): the type of each job in each round, or UNASSIGNED."""

    shares: TimeShares
    assignment: NDArray[np.int64]

    @property
    def received(self) -> Floats:
        """Return the part of the rounds that each job received on each type (n, T)."""
        types = np.arange(len(self.shares.problem.types))
        return np.asarray((self.assignment[:, :, None] == types).mean(axis=0))

    @property
    def max_deficit(self) -> float:
        """Return the largest part of a share that the rounds did not provide."""
        return max(0.0, float((self.shares.share - self.received).max()))

    @property
    def idle(self) -> float:
        """Return the part of the shares' GPU time that the rounds did not use."""
        width = self.shares.problem.width
        meant = float((width @ self.shares.share).sum())
        return max(0.0, 1.0 - float((width @ self.received).sum()) / meant)


def round_shares(shares: TimeShares, rounds: int, priority: Priority = "deficit") -> RoundPlan:
    """Return the first `rounds` rounds for these shares."""
    scheduler = RoundScheduler(shares.problem, priority)
    count = require_count(rounds, "rounds")
    return RoundPlan(shares, np.stack([scheduler.next_round(shares.share) for _ in range(count)]))
