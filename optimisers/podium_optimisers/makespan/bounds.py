"""Lower bounds of the optimum that need no schedule, and the bisection that finds them.

For a guess L: a task longer than L on one side must run on the other; of the rest, the GPUs' area k L takes those with
the highest acceleration (a fractional knapsack: the cheapest for the CPUs). If the CPUs' work then still passes m L, no
schedule of length L exists. `registry` gives every schedule this bound; `lp_rounding` and `dual` start from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.makespan.instance import Bools, Floats, Instance, Ints

EXACT = 1e-12  # relative: a NO must stand although sums of floats are not exact
STEPS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The LP's answer at a guess: share of each task on the GPUs (at most one is a fraction), and the CPUs' work."""

    on_gpu: Floats
    work: float


def by_acceleration(instance: Instance) -> Ints:
    """Task numbers, the highest acceleration first; the longer on the CPU first among equals."""
    return np.lexsort((np.arange(instance.n), -instance.cpu, -instance.acceleration()))


def forced(instance: Instance, guess: float) -> tuple[Bools, Bools] | None:
    """Who must run on a CPU and who on a GPU at this guess; None if a task is too long for both."""
    to_cpu, to_gpu = instance.gpu > guess, instance.cpu > guess
    return None if (to_cpu & to_gpu).any() else (to_cpu, to_gpu)


def split(instance: Instance, order: Ints, guess: float) -> Split | None:
    """Least work of the CPUs at this guess, or None: no schedule of this length exists. Proof in the module's text."""
    sides = forced(instance, guess)
    if sides is None:
        return None
    to_cpu, to_gpu = sides
    on_gpu = to_gpu.astype(np.float64)
    room = instance.gpus * guess * (1 + EXACT) - float(instance.gpu[to_gpu].sum())
    if room < 0:
        return None
    free = order[~(to_cpu | to_gpu)[order]]
    lengths = instance.gpu[free]
    before = np.cumsum(lengths) - lengths
    on_gpu[free] = np.clip((room - before) / lengths, 0.0, 1.0)
    stay = on_gpu < 1.0
    work = float((instance.cpu[stay] * (1.0 - on_gpu[stay])).sum())
    return None if work > instance.cpus * guess * (1 + EXACT) else Split(on_gpu, work)


def area_bound(instance: Instance) -> tuple[float, float]:
    """(lower, upper): no schedule ends before `lower`; the LP is feasible at `upper`, which is hardly above."""
    order = by_acceleration(instance)
    lower = float(np.minimum(instance.cpu, instance.gpu).max())
    if split(instance, order, lower) is not None:
        return lower, lower
    upper = lower
    while split(instance, order, upper) is None:
        lower, upper = upper, 2.0 * upper
    for _ in range(STEPS):
        guess = (lower + upper) / 2
        if not lower < guess < upper:
            break
        if split(instance, order, guess) is None:
            lower = guess
        else:
            upper = guess
    return lower, upper
