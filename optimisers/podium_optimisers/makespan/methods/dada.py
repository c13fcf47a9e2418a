"""A method like DADA: affinity first, then a dual approximation that fills the GPUs.

Source: Bleuse, Gautier, Lima, Mounié, Trystram (Euro-Par 2014, arXiv 1402.6601). At a guess L the step has two phases:

- The tasks that gain most from their faster side go there, up to ALPHA of the side's area.
- Of the rest, tasks too long for one side go to the other. The GPUs take the most accelerated ones until their area k L
  is reached, and the CPUs take what is left.

If the CPUs' part exceeds m L, the step rejects L: the rest alone, a part of the instance, has no schedule of length L.
Otherwise no side has more than (1 + ALPHA) L for each machine plus one task, so LPT ends by (2 + ALPHA) L.

In the paper, a task has affinity with the machine that holds its data. (Pm,Pk)||Cmax has no data, so speed replaces it.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.arrays import Bools
from podium_optimisers.makespan.bounds import ROUNDING
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.methods.list_scheduling import lpt_by_side
from podium_optimisers.makespan.schedule import MakespanPlan

ALPHA = 0.5
GAP = 1e-3  # relative width at which the bisection ends


def solve(instance: MakespanInstance) -> MakespanPlan:
    """Return the best schedule of the bisection on L."""
    # start far below the optimum: a step may accept an L below it, and its best schedules come from there
    lower = float(np.minimum(instance.cpu, instance.gpu).max())
    guess, upper, plans = lower, np.inf, []
    while upper > lower * (1 + GAP):
        on_gpu = step(instance, guess)
        if on_gpu is None:
            lower = guess
        else:
            upper = guess
            plans.append(lpt_by_side(instance, on_gpu))
        guess = (lower + upper) / 2 if plans else 2.0 * guess
    return MakespanPlan(min(plans, key=lambda plan: float(instance.loads(plan).max())), bound=lower)


def step(instance: MakespanInstance, guess: float) -> Bools | None:
    """Return which tasks go to the GPUs, shape (n,), for a schedule of at most (2 + ALPHA) L.

    Returns None if no schedule of length L exists.
    """
    on_gpu, near = _affinity(instance, guess)
    to_cpu, to_gpu = ~near & (instance.gpu > guess), ~near & (instance.cpu > guess)
    if (np.minimum(instance.cpu, instance.gpu) > guess).any():
        return None
    limit = instance.gpus * guess * (1 + ROUNDING)
    area = float(instance.gpu[to_gpu].sum())
    if area > limit:
        return None
    on_gpu |= to_gpu
    free = ~near & ~to_cpu & ~to_gpu
    order = np.argsort(-instance.acceleration(), kind="stable")
    for task in order[free[order]].tolist():
        if area >= limit:
            break
        on_gpu[task] = True
        area += float(instance.gpu[task])
    work = float(instance.cpu[~near & ~on_gpu].sum())
    return None if work > instance.cpus * guess * (1 + ROUNDING) else on_gpu


def _affinity(instance: MakespanInstance, guess: float) -> tuple[Bools, Bools]:
    """Return (on the GPUs, assigned at all) after the first phase.

    Tasks are taken by falling ratio of their two times while they fit.
    """
    on_gpu, near = np.zeros(instance.n, dtype=bool), np.zeros(instance.n, dtype=bool)
    time_left = [ALPHA * guess * instance.cpus, ALPHA * guess * instance.gpus]
    factor = np.maximum(instance.acceleration(), instance.gpu / instance.cpu)
    for task in np.argsort(-factor, kind="stable").tolist():
        side = bool(instance.gpu[task] < instance.cpu[task])
        seconds = float(instance.gpu[task] if side else instance.cpu[task])
        if seconds <= time_left[side]:
            time_left[side] -= seconds
            on_gpu[task], near[task] = side, True
    return on_gpu, near
