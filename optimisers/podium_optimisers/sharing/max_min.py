"""Weighted max-min fair shares: nobody can have more without taking it from somebody who has no more.

Called by the benchmark. A sequence of LPs: raise the least level of all; the jobs whose row has a positive price cannot
go higher (complementary slackness), they keep that level; raise the others. Source: Radunovic and Le Boudec (2007);
level as in Gavel (OSDI 2020), section 4.1.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.sharing.lp import highest
from podium_optimisers.sharing.problem import Floats, SharingProblem
from podium_optimisers.sharing.shares import Shares

SLACK = 1e-7  # relative, above the tolerance of the solver
HELD = 1e-7  # a row that is more than this part of what keeps the level from rising binds it


def references(problem: SharingProblem) -> Floats:
    """(n,) throughput of each job with its time split over the types as the GPUs are: what it counts as 1."""
    part = problem.gpus * problem.allowed
    return np.asarray((problem.usable * part).sum(axis=1) / part.sum(axis=1))


def levels(problem: SharingProblem, throughput: Floats) -> Floats:
    """(n,) width x throughput / reference / weight: GPU time made comparable over types, per unit of weight."""
    return problem.width * throughput / references(problem) / problem.weight


def max_min_shares(problem: SharingProblem) -> Shares:
    """At most n LPs. `objective`: the least level of the shares that are given; `bound`: no sharing has a higher one,
    by the prices of the first LP. The levels above the least are not certified.
    """
    gain = problem.usable * (problem.width / references(problem) / problem.weight)[:, None]
    n = len(problem.jobs)
    rising, floor = np.ones(n, dtype=np.bool_), np.zeros(n)
    bound = 0.0
    share = np.zeros_like(gain)
    while rising.any():
        found = highest(problem, gain, rising.astype(np.float64), floor)
        share = found.share
        if not floor.any():
            bound = found.bound
        settled = found.held > HELD
        # a hair below what was reached, so that the solver's rounding cannot make the next LP impossible
        floor[settled] = found.z * (1.0 - SLACK)
        rising &= ~settled
        if not settled.any():
            raise AssertionError("what keeps the level from rising adds up to 1 over the rows, so one binds")
    # not the first LP's z: the later ones may fall a hair short of it
    objective = float(levels(problem, (problem.usable * share).sum(axis=1)).min())
    return Shares(problem, share, "max-min fair (sequence of LPs)", objective, bound)
