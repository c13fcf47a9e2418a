"""Least makespan of jobs with known work on GPUs of different speed: one LP, exact for jobs that can move at any time.

Called by `replay` and the benchmark. Source: Lawler and Labetoulle (1978); Gavel (OSDI 2020), section 4.2.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.queueing.checks import InputError, require_all
from podium_optimisers.sharing.lp import highest
from podium_optimisers.sharing.problem import Floats, SharingProblem
from podium_optimisers.sharing.shares import Shares


def makespan_shares(problem: SharingProblem, steps: Floats) -> Shares:
    """`steps` (n,) of work left. The objective is 1 / makespan (per second): all jobs end at its inverse."""
    if steps.shape != (len(problem.jobs),):
        raise InputError("ShapeMismatch", "steps", f"has the shape {steps.shape}; give one for each job")
    require_all(steps, "steps", problem.jobs, above=0.0)
    found = highest(problem, problem.usable, steps, np.zeros_like(steps))
    return Shares(problem, found.share, "least makespan (LP)", found.z, found.bound)


def least_makespan(shares: Shares, steps: Floats) -> float:
    """Seconds until the last job ends if everyone keeps these shares."""
    return float((steps / shares.throughput).max())
