"""From shares of time to who runs where in each round: the mechanism of Gavel. Called by `replay` and the benchmark.

A share of 0.3 is no schedule. Time is cut into rounds; in each, pairs of job and type go by priority, the highest
first, as long as GPUs of the type are free and the job has no place yet. What was passed over comes earlier next time.
Two priorities: "ratio" is Gavel's (OSDI 2020, section 5), share / part of the rounds received; "owed" is rounds
promised less rounds received, which never makes a job with a share of 1 wait. The benchmark has both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.queueing.checks import require_count
from podium_optimisers.sharing.problem import Floats, Ints, SharingProblem
from podium_optimisers.sharing.shares import Shares

NOWHERE = -1
NEGLIGIBLE = 1e-9  # a share that counts as none

Priority = Literal["owed", "ratio"]


@dataclass(slots=True)
class Rounds:
    """Deals out one round after another, also while shares change. `promised` and `received` (n, T): rounds so far."""

    problem: SharingProblem
    priority: Priority = "owed"
    promised: Floats = field(init=False)
    received: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.promised = np.zeros(self.problem.rate.shape)
        self.received = np.zeros(self.problem.rate.shape, dtype=np.int64)

    def next(self, share: Floats) -> Ints:
        """(n,): the type on which each job runs in this round, or NOWHERE; `share` (n, T). O(n T log(n T))."""
        self.promised += share
        jobs, types = np.nonzero(share > NEGLIGIBLE)
        order = np.lexsort((types, jobs, -share[jobs, types], -self._priorities()[jobs, types]))
        place = np.full(len(self.problem.jobs), NOWHERE, dtype=np.int64)
        free, width = self.problem.gpus.tolist(), self.problem.width.tolist()
        for job, type_ in zip(jobs[order].tolist(), types[order].tolist(), strict=True):
            if place[job] == NOWHERE and width[job] <= free[type_]:
                place[job] = type_
                free[type_] -= width[job]
        runs = np.flatnonzero(place != NOWHERE)
        self.received[runs, place[runs]] += 1
        return place

    def _priorities(self) -> Floats:
        if self.priority == "owed":
            return self.promised - self.received
        never = self.received == 0
        return np.where(never, np.inf, self.promised / np.where(never, 1, self.received))


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """`place` (rounds, n): type of each job in each round, or NOWHERE."""

    shares: Shares
    place: NDArray[np.int64]

    @property
    def received(self) -> Floats:
        """(n, T): part of the rounds that each job had on each type."""
        types = np.arange(len(self.shares.problem.types))
        return np.asarray((self.place[:, :, None] == types).mean(axis=0))

    @property
    def owed(self) -> float:
        """The largest part of a share that the rounds did not give."""
        return max(0.0, float((self.shares.share - self.received).max()))

    @property
    def idle(self) -> float:
        """Part of the GPU time that the shares use and the rounds did not."""
        width = self.shares.problem.width
        meant = float((width @ self.shares.share).sum())
        return max(0.0, 1.0 - float((width @ self.received).sum()) / meant)


def rounded(shares: Shares, rounds: int, priority: Priority = "owed") -> RoundPlan:
    """The first `rounds` rounds."""
    dealer = Rounds(shares.problem, priority)
    count = require_count(rounds, "rounds")
    return RoundPlan(shares, np.stack([dealer.next(shares.share) for _ in range(count)]))
