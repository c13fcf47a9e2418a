"""The linear program behind makespan and max-min shares.

It maximises z with throughputs >= `need` z + `floor`. HiGHS solves it through scipy. The bound comes from the prices
alone (weak duality), so it is valid whatever the solver did.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from podium_optimisers.arrays import Floats
from podium_optimisers.sharing.problem import SharingProblem
from podium_optimisers.sharing.shares import clip_to_feasible

SOLVERS = ("highs", "highs-ipm")  # the second is the fallback; the first can fail if weights differ by 10^4
# the default of 1e-7 accumulates over the LPs
SOLVER_OPTIONS = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
FLOOR_RELAXATION = 1e-6  # relative; a presolve with a tolerance of 1e-7 may reject floors that are only just feasible


class SolverError(RuntimeError):
    """HiGHS failed on a feasible problem: a bug, or numbers of extreme range."""


@dataclass(frozen=True, slots=True)
class MinLevelSolution:
    """A solution: `share` (n, T) reaches `z`, and no sharing exceeds `bound`.

    `price_share` (n,): how much each job's row limits z; at least 0, with sum 1.
    """

    share: Floats
    z: float
    bound: float
    price_share: Floats


def maximise_min_level(problem: SharingProblem, gain: Floats, need: Floats, floor: Floats) -> MinLevelSolution:
    """Maximise z with sum_t gain_it x_it >= need_i z + floor_i over all shares x.

    `gain` (n, T) is 0 where a job cannot run. `need` (n,) >= 0 is not all 0. `floor` (n,) must be feasible.
    """
    # the solver's tolerances are absolute, so scale rows by the job's best type and z by the largest need
    best = gain.max(axis=1)
    unit = float((need / best).max())
    scaled = _scaled(problem, gain / best[:, None], need / best / unit, floor / best)
    return MinLevelSolution(scaled.share, scaled.z / unit, scaled.bound / unit, scaled.price_share)


def _scaled(problem: SharingProblem, gain: Floats, need: Floats, floor: Floats) -> MinLevelSolution:
    """Solve the scaled program."""
    jobs, columns = np.nonzero(gain)
    pairs, n, types = jobs.size, len(problem.jobs), len(problem.types)
    pair = np.arange(pairs)
    # rows: throughput (n), time (n), GPUs (types); the last column is z
    entries = [
        (jobs, pair, -gain[jobs, columns]),
        (np.arange(n), np.full(n, pairs), need),
        (n + jobs, pair, np.ones(pairs)),
        (2 * n + columns, pair, problem.width[jobs].astype(np.float64)),
    ]
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    matrix = coo_array((value, (row, column)), shape=(2 * n + types, pairs + 1)).tocsr()
    cost = np.zeros(pairs + 1)
    cost[-1] = -1.0
    for method, relaxation in product(SOLVERS, (0.0, FLOOR_RELAXATION)):
        right = np.concatenate([floor * (relaxation - 1.0), np.ones(n), problem.gpus.astype(np.float64)])
        answer = linprog(cost, A_ub=matrix, b_ub=right, method=method, options=SOLVER_OPTIONS)
        if answer.status == 0:
            break
    else:
        raise SolverError(f"LinearProgramFailed: {answer.message}")
    share = np.zeros_like(gain)
    share[jobs, columns] = answer.x[:-1]
    # a job that needs less than the solver's tolerance may have received nothing: add it on the best type
    short = np.clip(need * answer.x[-1] + floor - (gain * share).sum(axis=1), 0.0, None)
    share[np.arange(n), gain.argmax(axis=1)] += short
    share = clip_to_feasible(problem, share)
    price = np.clip(-answer.ineqlin.marginals, 0.0, None)
    binds = need > 0.0
    reached = ((gain * share).sum(axis=1)[binds] - floor[binds]) / need[binds]
    bound = _bound(problem, gain, need, floor, price[:n], price[2 * n :])
    price_share = price[:n] * need
    return MinLevelSolution(share, float(reached.min()), bound, price_share / price_share.sum())


def _bound(
    problem: SharingProblem, gain: Floats, need: Floats, floor: Floats, worth: Floats, gpu_price: Floats
) -> float:
    """Return an upper bound on z by weak duality.

    For any worth >= 0 of the jobs' rows and prices >= 0 of the GPUs, since a job has at most its whole time to spend:

        z (worth . need) <= sum_i max(0, max_t (worth_i gain_it - width_i price_t)) + price . gpus - worth . floor
    """
    total = float(worth @ need)
    if total <= 0.0:
        return float("inf")
    best = (worth[:, None] * gain - problem.width[:, None] * gpu_price[None, :]).max(axis=1)
    return float((np.clip(best, 0.0, None).sum() + gpu_price @ problem.gpus - worth @ floor) / total)
