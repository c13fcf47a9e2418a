"""The linear program that makespan and max-min share: the largest z with throughputs of at least `need` z (+ `floor`).

Called by `makespan` and `max_min`. Solved by HiGHS through scipy. The bound comes from the prices alone (weak duality),
so it holds whatever the solver did.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from podium_optimisers.sharing.problem import Floats, SharingProblem
from podium_optimisers.sharing.shares import trimmed

METHODS = ("highs", "highs-ipm")  # the second where the first gives up, which happens where weights differ 10^4 times
EXACT = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}  # 1e-7 adds up over the LPs
EASED = 1e-6  # relative: floors that only just can be reached are impossible to a presolve with a tolerance of 1e-7


class SolverError(RuntimeError):
    """HiGHS gave up on a problem that has a solution: a bug or numbers out of all range."""


@dataclass(frozen=True, slots=True)
class Level:
    """`share` (n, T) reaches `z`; no sharing passes `bound`. `held` (n,): how much of what keeps z from rising is each
    job's row; at least 0, adds up to 1.
    """

    share: Floats
    z: float
    bound: float
    held: Floats


def highest(problem: SharingProblem, gain: Floats, need: Floats, floor: Floats) -> Level:
    """Maximise z with sum_t gain_it x_it >= need_i z + floor_i, over all shares x.

    `gain` (n, T) with zeros where a job cannot run, `need` (n,) >= 0 and not all 0, `floor` (n,) reachable.
    """
    # numbers near 1 for the solver, whose tolerances are absolute: rows by the job's best type, z by the largest need
    best = gain.max(axis=1)
    unit = float((need / best).max())
    found = _scaled(problem, gain / best[:, None], need / best / unit, floor / best)
    return Level(found.share, found.z / unit, found.bound / unit, found.held)


def _scaled(problem: SharingProblem, gain: Floats, need: Floats, floor: Floats) -> Level:
    jobs, columns = np.nonzero(gain)
    pairs, n, types = jobs.size, len(problem.jobs), len(problem.types)
    at = np.arange(pairs)
    # rows: reach (n), time (n), GPUs (types); the last column is z
    entries = [
        (jobs, at, -gain[jobs, columns]),
        (np.arange(n), np.full(n, pairs), need),
        (n + jobs, at, np.ones(pairs)),
        (2 * n + columns, at, problem.width[jobs].astype(np.float64)),
    ]
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    matrix = coo_array((value, (row, column)), shape=(2 * n + types, pairs + 1)).tocsr()
    cost = np.zeros(pairs + 1)
    cost[-1] = -1.0
    for method, eased in product(METHODS, (0.0, EASED)):
        right = np.concatenate([floor * (eased - 1.0), np.ones(n), problem.gpus.astype(np.float64)])
        answer = linprog(cost, A_ub=matrix, b_ub=right, method=method, options=EXACT)
        if answer.status == 0:
            break
    else:
        raise SolverError(f"LinearProgramFailed: {answer.message}")
    share = np.zeros_like(gain)
    share[jobs, columns] = answer.x[:-1]
    # a job that needs less than the solver's tolerance may have got nothing: it gets that on its best type
    short = np.clip(need * answer.x[-1] + floor - (gain * share).sum(axis=1), 0.0, None)
    share[np.arange(n), gain.argmax(axis=1)] += short
    share = trimmed(problem, share)
    price = np.clip(-answer.ineqlin.marginals, 0.0, None)
    binds = need > 0.0
    reached = ((gain * share).sum(axis=1)[binds] - floor[binds]) / need[binds]
    bound = _bound(problem, gain, need, floor, price[:n], price[2 * n :])
    held = price[:n] * need
    return Level(share, float(reached.min()), bound, held / held.sum())


def _bound(
    problem: SharingProblem, gain: Floats, need: Floats, floor: Floats, worth: Floats, gpu_price: Floats
) -> float:
    """For any worth >= 0 of the jobs' rows and prices >= 0 of the GPUs:

    z (worth . need) <= sum_i [ best over the types of (worth_i gain_it - width_i price_t), or 0 ] + price . gpus
                        - worth . floor, since a job has at most its whole time to spend.
    """
    total = float(worth @ need)
    if total <= 0.0:
        return float("inf")
    best = (worth[:, None] * gain - problem.width[:, None] * gpu_price[None, :]).max(axis=1)
    return float((np.clip(best, 0.0, None).sum() + gpu_price @ problem.gpus - worth @ floor) / total)
