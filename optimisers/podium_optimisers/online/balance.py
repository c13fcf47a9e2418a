"""Which side each waiting task should take, all of them looked at together: the dual approximation of ratio 2.

Called by `adaptive` whenever something changes. Guess a length L: tasks longer than L on one side take the other, the
GPUs then take those that gain most until they have L seconds each, the rest goes to the CPUs. If the CPUs get more
than L seconds each, no schedule of length L exists; else each side ends by 2 L in any order. Source: DualHP (Bleuse,
Kedad-Sidhoum, Monna, Mounie, Trystram 2015).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.online.stream import Floats

PRECISION = 1e-6  # of the guess, relative
Sides = NDArray[np.bool_]


def balanced(cpu: Floats, gpu: Floats, cpus: int, gpus: int) -> Sides:
    """True: GPU, shape (n,). O(n log n) a guess. A side without machines gets only what can run nowhere else."""
    if not cpus or not gpus:
        return np.isinf(cpu) if not gpus else np.isfinite(gpu)
    order = np.argsort(-(cpu / gpu), kind="stable")
    best = np.minimum(cpu, gpu)
    impossible, possible = 0.0, float(best.sum())
    chosen = _sides(cpu, gpu, cpus, gpus, order, possible)
    if chosen is None:
        raise AssertionError("a length that holds all tasks on one machine is always possible")
    while possible - impossible > PRECISION * possible:
        middle = (impossible + possible) / 2.0
        found = _sides(cpu, gpu, cpus, gpus, order, middle)
        if found is None:
            impossible = middle
        else:
            possible, chosen = middle, found
    return chosen


def _sides(cpu: Floats, gpu: Floats, cpus: int, gpus: int, order: NDArray[np.int64], guess: float) -> Sides | None:
    """None: certainly no schedule is as short as `guess`."""
    guess_up = guess * (1.0 + 1e-12)
    must_gpu, must_cpu = cpu > guess_up, gpu > guess_up
    if (must_gpu & must_cpu).any() or gpu[must_gpu].sum() > gpus * guess_up:
        return None
    free = order[~(must_gpu | must_cpu)[order]]
    before = gpu[must_gpu].sum() + np.cumsum(gpu[free]) - gpu[free]
    sides = must_gpu.copy()
    sides[free[before < gpus * guess_up]] = True  # the last one may stand out over the guess
    return sides if cpu[~sides].sum() <= cpus * guess_up else None
