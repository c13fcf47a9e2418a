"""Instances for benchmarks and tests: random ones from a seed and hard ones by hand."""

from __future__ import annotations

import numpy as np

from podium_optimisers.makespan.instance import MakespanInstance


def random_instance(n: int, cpus: int, gpus: int, rng: np.random.Generator) -> MakespanInstance:
    """Return a random instance of mostly accelerated tasks.

    CPU times are uniform in 10..100 s. On a GPU 70 % of the tasks are 5 to 30 times faster, the others 0.5 to 5 times.
    """
    cpu = rng.uniform(10.0, 100.0, n)
    speed_up = np.where(rng.random(n) < 0.7, rng.uniform(5.0, 30.0, n), rng.uniform(0.5, 5.0, n))
    return MakespanInstance.of(cpu, cpu / speed_up, cpus, gpus)


def random_unrelated_instance(n: int, cpus: int, gpus: int, rng: np.random.Generator) -> MakespanInstance:
    """Return a random instance with independent times, uniform in 5..10 s on both sides.

    Here the dual approximation depends on its shelves, so its bisection rejects many guesses.
    """
    return MakespanInstance.of(rng.uniform(5.0, 10.0, n), rng.uniform(5.0, 10.0, n), cpus, gpus)


def graham_trap(factor: float) -> MakespanInstance:
    """Return two tasks that list scheduling runs on the wrong side, `factor` times slower.

    The optimum is 1 s. Source: slides of Kedad-Sidhoum et al. (2013).
    """
    return MakespanInstance.of([factor, 1.0], [1.0, factor], 1, 1)


def hard_instances() -> dict[str, MakespanInstance]:
    """Return hard instances by name."""
    halves = [5.0, 5.0, 4.0, 4.0, 3.0, 3.0, 3.0]  # Graham (1969): LPT ends at 11 on three machines, the optimum is 9
    return {
        "list": graham_trap(1000.0),
        "lpt": MakespanInstance.of(halves, [np.inf] * 7, 3, 1),
        "lpt on GPUs": MakespanInstance.of([1000.0] * 7, halves, 1, 3),
        "one long task": MakespanInstance.of([100.0, *[1.0] * 9], [50.0, *[0.9] * 9], 4, 1),
        "alike": MakespanInstance.of([3.0] * 20, [2.0] * 20, 6, 6),
        "one acceleration": MakespanInstance.of(
            [3.0 * i for i in range(1, 21)], [float(i) for i in range(1, 21)], 5, 2
        ),
        "GPUs are slower": MakespanInstance.of([1.0] * 12, [40.0] * 12, 2, 4),
        "all at two thirds": MakespanInstance.of([2.0] * 9 + [1.0] * 9, [1.9] * 9 + [2.9] * 9, 6, 3),
    }
