"""The dual approximation: bisection on the guess L, a step of which is `shelves`; then local search. Sources: Hochbaum,
Shmoys 1988; Kedad-Sidhoum, Monna, Mounié, Trystram (HeteroPar 2013; CCPE 27(6), 2015).

Every NO raises the certified lower bound to L, every YES gives a schedule of at most `proven_ratio` L. At the end
makespan <= proven_ratio x (1 + GAP) x lower bound. What is left to gain is mostly in the CPUs: least CPU work fills the
GPUs up to 4/3 L, and the local search takes that back.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import Instance, Ints
from podium_optimisers.makespan.local_search import kicked
from podium_optimisers.makespan.pack import pack
from podium_optimisers.makespan.schedule import Plan
from podium_optimisers.makespan.shelves import sides

GAP = 1e-3  # relative width at which the bisection ends: the eps of 4/3 + eps
WIDER = 1.02  # factor on the guess while every answer is NO and no schedule is known
KICKS, TASKS = 300, 100_000  # kicks of the local search: TASKS / n of them, at most KICKS, at least one


def proven_ratio(instance: Instance) -> float:
    """Makespan over optimum at most, besides 1 + GAP: 4/3 for no GPU or one, 4/3 + 1/(3 k) for more."""
    return 4 / 3 if instance.gpus <= 1 else 4 / 3 + 1 / (3 * instance.gpus)


def shelved(instance: Instance) -> Plan:
    """The dual approximation alone, as in the paper."""
    lower, guess = area_bound(instance)
    best: Ints | None = None
    end = upper = np.inf
    while upper > lower * (1 + GAP):
        on_gpu = sides(instance, guess)
        if on_gpu is None:
            lower = guess
        else:
            found = pack(instance, on_gpu)
            reached = float(instance.loads(found).max())
            if reached < end:
                best, end = found, reached
            # a schedule of length `end` is itself a YES at `end`
            upper = min(upper, guess, end)
        guess = WIDER * lower if best is None else (lower + upper) / 2
    if best is None:
        raise RuntimeError(f"the bisection ended at {lower:g} s without a schedule")
    return Plan(best, bound=lower)


def searched(instance: Instance, rng: np.random.Generator) -> Plan:
    """`shelved`, then local search with seeded kicks. Never worse than `shelved`."""
    plan = shelved(instance)
    kicks = max(1, min(KICKS, TASKS // instance.n))
    return Plan(kicked(instance, plan.machine_of, kicks, plan.bound, rng), bound=plan.bound)
