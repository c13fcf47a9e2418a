"""Weighted max-min fair shares: no job can gain without taking from a job that has no more.

The method is a sequence of LPs. Each LP raises the least level. The jobs whose rows have positive prices cannot rise
(complementary slackness) and keep that level; the others continue. Source: Radunovic and Le Boudec (2007); level as in
Gavel (OSDI 2020), section 4.1.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.sharing.lp import maximise_min_level
from podium_optimisers.sharing.problem import SharingProblem
from podium_optimisers.sharing.shares import TimeShares

SLACK = 1e-7  # relative; larger than the tolerance of the solver
BINDING = 1e-7  # a row with a larger share of the prices is binding


def references(problem: SharingProblem) -> Floats:
    """Return the throughput of each job (n,) if its time is split over the types as the GPUs are."""
    part = problem.gpus * problem.allowed
    return np.asarray((problem.usable * part).sum(axis=1) / part.sum(axis=1))


def levels(problem: SharingProblem, throughput: Floats) -> Floats:
    """Return width x throughput / reference / weight (n,): GPU time made comparable over types."""
    return problem.width * throughput / references(problem) / problem.weight


def max_min_shares(problem: SharingProblem) -> TimeShares:
    """Return the max-min fair shares by at most n LPs.

    `objective` is the least level of the returned shares; `bound` limits it by the prices of the first LP. The levels
    above the least are not certified. Each job may end up to SLACK below its exact level. Others can gain much by that
    where two rates of a job nearly agree.
    """
    gain = problem.usable * (problem.width / references(problem) / problem.weight)[:, None]
    n = len(problem.jobs)
    rising, floor = np.ones(n, dtype=np.bool_), np.zeros(n)
    bound = 0.0
    share = np.zeros_like(gain)
    while rising.any():
        solution = maximise_min_level(problem, gain, rising.astype(np.float64), floor)
        share = solution.share
        if not floor.any():
            bound = solution.bound
        binding = solution.price_share > BINDING
        # slightly below the level reached, so that rounding cannot make the next LP infeasible
        floor[binding] = solution.z * (1.0 - SLACK)
        rising &= ~binding
        if not binding.any():
            raise AssertionError("the prices of the rows sum to 1, so at least one row is binding")
    # the later LPs may end slightly below the first LP's z, so compute the level of the result
    objective = float(levels(problem, (problem.usable * share).sum(axis=1)).min())
    return TimeShares(problem, share, "max-min fair (sequence of LPs)", objective, bound)
