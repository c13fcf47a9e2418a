"""The dual approximation: bisection on the guess L with the step of `shelves`, then local search.

Sources: Hochbaum, Shmoys 1988; Kedad-Sidhoum, Monna, Mounié, Trystram (HeteroPar 2013; CCPE 27(6), 2015).

Every rejection raises the certified lower bound to L, and every accepted guess gives a schedule of at most
`approximation_ratio` L. At the end, makespan <= approximation_ratio x (1 + GAP) x lower bound. The remaining loss is
mostly on the CPUs: least CPU work fills the GPUs up to 4/3 L, and the local search reverses that.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.arrays import Ints
from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.methods.list_scheduling import lpt_by_side
from podium_optimisers.makespan.methods.local_search import iterated_local_search
from podium_optimisers.makespan.methods.shelves import dual_step
from podium_optimisers.makespan.schedule import MakespanPlan

GAP = 1e-3  # relative width at which the bisection ends: the eps of 4/3 + eps
GUESS_GROWTH = 1.02  # growth of the guess while all guesses are rejected and no schedule is known
MAX_KICKS, KICK_BUDGET = 300, 100_000  # KICK_BUDGET / n kicks of the local search, at least one and at most MAX_KICKS


def approximation_ratio(instance: MakespanInstance) -> float:
    """Return the proven bound of makespan over optimum, apart from the factor 1 + GAP.

    It is 4/3 for at most one GPU, and 4/3 + 1/(3 k) for k >= 2.
    """
    return 4 / 3 if instance.gpus <= 1 else 4 / 3 + 1 / (3 * instance.gpus)


def dual_approximation(instance: MakespanInstance) -> MakespanPlan:
    """Return the plan of the dual approximation alone, as in the paper."""
    lower, guess = area_bound(instance)
    best: Ints | None = None
    end = upper = np.inf
    while upper > lower * (1 + GAP):
        on_gpu = dual_step(instance, guess)
        if on_gpu is None:
            lower = guess
        else:
            assignment = lpt_by_side(instance, on_gpu)
            reached = float(instance.loads(assignment).max())
            if reached < end:
                best, end = assignment, reached
            # a schedule of length `end` shows that the guess `end` is feasible
            upper = min(upper, guess, end)
        guess = GUESS_GROWTH * lower if best is None else (lower + upper) / 2
    if best is None:
        raise RuntimeError(f"the bisection ended at {lower:g} s without a schedule")
    return MakespanPlan(best, bound=lower)


def dual_with_local_search(instance: MakespanInstance, rng: np.random.Generator) -> MakespanPlan:
    """Return the plan of the dual approximation after local search; never worse than without."""
    plan = dual_approximation(instance)
    kicks = max(1, min(MAX_KICKS, KICK_BUDGET // instance.n))
    return MakespanPlan(iterated_local_search(instance, plan.machine_of, kicks, plan.bound, rng), bound=plan.bound)
