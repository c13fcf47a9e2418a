"""Lower bounds on the optimal makespan by bisection with a fractional knapsack.

For a guess L, a task longer than L on one side must run on the other. Of the other tasks, the GPUs' area k L takes
those with the highest acceleration, which leaves the least work for the CPUs (a fractional knapsack). If the CPUs' work
still exceeds m L, no schedule of length L exists. `registry` gives every schedule this bound; `lp_rounding` and `dual`
start from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Bools, Floats, Ints
from podium_optimisers.makespan.instance import MakespanInstance

ROUNDING = 1e-12  # relative: a rejection must be valid although sums of floats are rounded
STEPS = 60


@dataclass(frozen=True, slots=True, eq=False)
class FractionalSplit:
    """The LP solution at a guess: the share of each task on the GPUs and the work of the CPUs.

    At most one share is a fraction.
    """

    on_gpu: Floats
    work: float


def by_acceleration(instance: MakespanInstance) -> Ints:
    """Return the task numbers by falling acceleration; ties go to the longer task on the CPU."""
    return np.lexsort((np.arange(instance.n), -instance.cpu, -instance.acceleration()))


def forced_sides(instance: MakespanInstance, guess: float) -> tuple[Bools, Bools] | None:
    """Return which tasks must run on a CPU and which on a GPU at this guess.

    Returns None if a task is too long for both sides.
    """
    to_cpu, to_gpu = instance.gpu > guess, instance.cpu > guess
    return None if (to_cpu & to_gpu).any() else (to_cpu, to_gpu)


def fractional_split(instance: MakespanInstance, order: Ints, guess: float) -> FractionalSplit | None:
    """Return the split with the least CPU work at this guess, or None if no schedule is that short.

    The module's docstring has the proof.
    """
    sides = forced_sides(instance, guess)
    if sides is None:
        return None
    to_cpu, to_gpu = sides
    on_gpu = to_gpu.astype(np.float64)
    gpu_time_left = instance.gpus * guess * (1 + ROUNDING) - float(instance.gpu[to_gpu].sum())
    if gpu_time_left < 0:
        return None
    free = order[~(to_cpu | to_gpu)[order]]
    lengths = instance.gpu[free]
    before = np.cumsum(lengths) - lengths
    on_gpu[free] = np.clip((gpu_time_left - before) / lengths, 0.0, 1.0)
    with_cpu = on_gpu < 1.0
    work = float((instance.cpu[with_cpu] * (1.0 - on_gpu[with_cpu])).sum())
    return None if work > instance.cpus * guess * (1 + ROUNDING) else FractionalSplit(on_gpu, work)


def area_bound(instance: MakespanInstance) -> tuple[float, float]:
    """Return (lower, upper): no schedule ends before `lower`, and the LP is feasible at `upper`.

    The two differ only by rounding.
    """
    order = by_acceleration(instance)
    lower = float(np.minimum(instance.cpu, instance.gpu).max())
    if fractional_split(instance, order, lower) is not None:
        return lower, lower
    upper = lower
    while fractional_split(instance, order, upper) is None:
        lower, upper = upper, 2.0 * upper
    for _ in range(STEPS):
        guess = (lower + upper) / 2
        if not lower < guess < upper:
            break
        if fractional_split(instance, order, guess) is None:
            lower = guess
        else:
            upper = guess
    return lower, upper
