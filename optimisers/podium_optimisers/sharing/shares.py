"""What a method of sharing gives: for each job the share of time on each type, feasible, with a certificate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.sharing.problem import Floats, SharingProblem


@dataclass(frozen=True, slots=True)
class Shares:
    """`share` (n, T): part of the time in which a job runs on its GPUs of a type. `objective` is what was maximised
    (see `method`), `bound` a proven limit of it that no sharing can pass, computed from prices and not by the solver.
    """

    problem: SharingProblem
    share: Floats
    method: str
    objective: float
    bound: float

    @property
    def throughput(self) -> Floats:
        """(n,) steps per second."""
        return np.asarray((self.problem.usable * self.share).sum(axis=1))

    @property
    def gap(self) -> float:
        """Bound less objective: the objective is at most this far from the best."""
        return self.bound - self.objective

    @property
    def residual(self) -> float:
        """Largest violation: of shares below 0, time above 1, GPUs above those there are (relative to their count)."""
        problem, share = self.problem, self.share
        used = problem.width @ share - problem.gpus
        found = [
            float(-share.min()),
            float((share.sum(axis=1) - 1.0).max()),
            float((used / np.maximum(problem.gpus, 1)).max()),
            float(np.abs(share[~problem.allowed]).max(initial=0.0)),
        ]
        return max(0.0, *found)


def trimmed(problem: SharingProblem, share: Floats) -> Floats:
    """A solver's shares without its rounding: no negative one, no job above its time, no type above its GPUs.

    Whatever this takes away shows in the gap, since the objective is computed afterwards.
    """
    share = np.where(problem.allowed, np.clip(share, 0.0, None), 0.0)
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    over = (problem.width @ share) / np.maximum(problem.gpus, 1)
    return np.asarray(share / np.maximum(over, 1.0)[None, :])
