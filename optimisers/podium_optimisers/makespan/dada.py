"""DADA-like: affinity first, then a dual approximation that fills the GPUs. Source: Bleuse, Gautier, Lima, Mounié,
Trystram (Euro-Par 2014, arXiv 1402.6601).

At a guess L: (1) the tasks that gain most from their faster side go there, up to ALPHA of the side's area; (2) of the
rest, tasks too long for one side go to the other, then the GPUs take the most accelerated ones until their area k L is
reached, and the CPUs what is left. If that is more than m L, the answer is NO: the rest alone, a part of the instance,
has no schedule of length L. Else no side has more than (1 + ALPHA) L a machine and one task: LPT ends by (2 + ALPHA) L.

"Like", for a task in the paper has affinity with the machine that holds its data; in (Pm,Pk)||Cmax there are no data,
and speed stands in for them.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.makespan.bounds import EXACT
from podium_optimisers.makespan.instance import Bools, Instance
from podium_optimisers.makespan.pack import pack
from podium_optimisers.makespan.schedule import Plan

ALPHA = 0.5
GAP = 1e-3  # relative width at which the bisection ends


def solve(instance: Instance) -> Plan:
    """The best schedule met in the bisection on L."""
    # from far below: a step may well succeed at an L that no schedule has, and gives its best schedules there
    lower = float(np.minimum(instance.cpu, instance.gpu).max())
    guess, upper, plans = lower, np.inf, []
    while upper > lower * (1 + GAP):
        on_gpu = step(instance, guess)
        if on_gpu is None:
            lower = guess
        else:
            upper = guess
            plans.append(pack(instance, on_gpu))
        guess = (lower + upper) / 2 if plans else 2.0 * guess
    return Plan(min(plans, key=lambda plan: float(instance.loads(plan).max())), bound=lower)


def step(instance: Instance, guess: float) -> Bools | None:
    """Who goes to the GPUs, shape (n,), for a schedule of (2 + ALPHA) L; None: no schedule of length L exists."""
    on_gpu, near = _affinity(instance, guess)
    to_cpu, to_gpu = ~near & (instance.gpu > guess), ~near & (instance.cpu > guess)
    if (np.minimum(instance.cpu, instance.gpu) > guess).any():
        return None
    limit = instance.gpus * guess * (1 + EXACT)
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
    return None if work > instance.cpus * guess * (1 + EXACT) else on_gpu


def _affinity(instance: Instance, guess: float) -> tuple[Bools, Bools]:
    """(on the GPUs, placed at all) after the first phase: by falling factor of the two times, while there is room."""
    on_gpu, near = np.zeros(instance.n, dtype=bool), np.zeros(instance.n, dtype=bool)
    room = [ALPHA * guess * instance.cpus, ALPHA * guess * instance.gpus]
    factor = np.maximum(instance.acceleration(), instance.gpu / instance.cpu)
    for task in np.argsort(-factor, kind="stable").tolist():
        side = bool(instance.gpu[task] < instance.cpu[task])
        seconds = float(instance.gpu[task] if side else instance.cpu[task])
        if seconds <= room[side]:
            room[side] -= seconds
            on_gpu[task], near[task] = side, True
    return on_gpu, near
