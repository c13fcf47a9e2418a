"""Instances for benchmarks and tests: seeded ones and a trap. Sources: research note 2.2; the seed's slide 8."""

from __future__ import annotations

import numpy as np

from podium_optimisers.makespan.instance import Instance


def typical(n: int, cpus: int, gpus: int, rng: np.random.Generator) -> Instance:
    """CPU times uniform in 10..100 s; 70 % of the tasks are 5 to 30 times faster on a GPU, others 0.5 to 5 times."""
    cpu = rng.uniform(10.0, 100.0, n)
    speed_up = np.where(rng.random(n) < 0.7, rng.uniform(5.0, 30.0, n), rng.uniform(0.5, 5.0, n))
    return Instance.of(cpu, cpu / speed_up, cpus, gpus)


def unrelated(n: int, cpus: int, gpus: int, rng: np.random.Generator) -> Instance:
    """Both times uniform in 5..10 s, independent: the shelves decide, so the bisection often hears a NO."""
    return Instance.of(rng.uniform(5.0, 10.0, n), rng.uniform(5.0, 10.0, n), cpus, gpus)


def list_trap(factor: float) -> Instance:
    """Slide 8: two tasks, each `factor` times slower where list scheduling puts it. The optimum is 1 s."""
    return Instance.of([factor, 1.0], [1.0, factor], 1, 1)


def traps() -> dict[str, Instance]:
    """Hand-made instances that a method may stumble over, by name."""
    halves = [5.0, 5.0, 4.0, 4.0, 3.0, 3.0, 3.0]  # Graham: LPT ends at 11 on three machines, the optimum is 9
    return {
        "list": list_trap(1000.0),
        "lpt": Instance.of(halves, [np.inf] * 7, 3, 1),
        "lpt on GPUs": Instance.of([1000.0] * 7, halves, 1, 3),
        "one long task": Instance.of([100.0, *[1.0] * 9], [50.0, *[0.9] * 9], 4, 1),
        "alike": Instance.of([3.0] * 20, [2.0] * 20, 6, 6),
        "one acceleration": Instance.of([3.0 * i for i in range(1, 21)], [float(i) for i in range(1, 21)], 5, 2),
        "GPUs are slower": Instance.of([1.0] * 12, [40.0] * 12, 2, 4),
        "all at two thirds": Instance.of([2.0] * 9 + [1.0] * 9, [1.9] * 9 + [2.9] * 9, 6, 3),
    }
