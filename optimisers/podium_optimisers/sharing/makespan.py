"""Shares with the least makespan for jobs with known work.

One LP, exact for jobs that can migrate at any time. Source: Lawler and Labetoulle (1978); Gavel (OSDI 2020), section
4.2.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.sharing.lp import maximise_min_level
from podium_optimisers.sharing.problem import SharingProblem
from podium_optimisers.sharing.shares import TimeShares
from podium_optimisers.validation import InputError, require_numbers


def makespan_shares(problem: SharingProblem, steps: Floats) -> TimeShares:
    """Return the shares with the least makespan for `steps` (n,) of remaining work.

    The objective is 1 / makespan (per second).
    """
    if steps.shape != (len(problem.jobs),):
        raise InputError("ShapeMismatch", "steps", f"the shape is {steps.shape}; give one value for each job")
    require_numbers(steps, "steps", problem.jobs, above=0.0)
    solution = maximise_min_level(problem, problem.usable, steps, np.zeros_like(steps))
    return TimeShares(problem, solution.share, "least makespan (LP)", solution.z, solution.bound)


def least_makespan(shares: TimeShares, steps: Floats) -> float:
    """Return the seconds until the last job ends if every job keeps these shares."""
    return float((steps / shares.throughput).max())
