"""The result of a sharing method: feasible time shares of each job on each type, with a certificate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.sharing.problem import SharingProblem


@dataclass(frozen=True, slots=True)
class TimeShares:
    """Time shares. `share` (n, T): the part of the time in which a job runs on its GPUs of a type.

    `objective` is the value that `method` maximised. `bound` is a proven limit that no sharing can exceed; it is
    computed from prices, independently of the solver.
    """

    problem: SharingProblem
    share: Floats
    method: str
    objective: float
    bound: float

    @property
    def throughput(self) -> Floats:
        """Return the steps per second of each job (n,)."""
        return np.asarray((self.problem.usable * self.share).sum(axis=1))

    @property
    def gap(self) -> float:
        """Return bound - objective: the objective is at most this far from the optimum."""
        return self.bound - self.objective

    @property
    def residual(self) -> float:
        """Return the largest violation: shares below 0, time above 1, or GPUs above capacity (relative)."""
        problem, share = self.problem, self.share
        used = problem.width @ share - problem.gpus
        violations = [
            float(-share.min()),
            float((share.sum(axis=1) - 1.0).max()),
            float((used / np.maximum(problem.gpus, 1)).max()),
            float(np.abs(share[~problem.allowed]).max(initial=0.0)),
        ]
        return max(0.0, *violations)


def clip_to_feasible(problem: SharingProblem, share: Floats) -> Floats:
    """Remove a solver's rounding from shares: negative shares, time above 1 and GPUs above capacity.

    The objective is computed afterwards, so the gap includes any loss.
    """
    share = np.where(problem.allowed, np.clip(share, 0.0, None), 0.0)
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    over = (problem.width @ share) / np.maximum(problem.gpus, 1)
    return np.asarray(share / np.maximum(over, 1.0)[None, :])
