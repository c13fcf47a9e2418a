"""Streams made to hurt: random ones, hand-made traps, and an adversary that watches a rule and answers it.

Called by the benchmark and the property tests: a proven ratio is only checked where somebody tries to break it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product

import numpy as np

from podium_optimisers.online.rules import Rule, run
from podium_optimisers.online.stream import Stream, Task

NEARLY = 1e-6  # how far below a threshold a trap stays


def typical(rng: np.random.Generator, count: int, cpus: int, gpus: int, rate: float) -> Stream:
    """Times of research note 2.2: CPU 10..100 s, on a GPU 5-30 times faster (70 %) or 0.5-5 times; Poisson arrivals.

    `rate`: tasks per second; infinite: all at once.
    """
    cpu = rng.uniform(10.0, 100.0, count)
    speed_up = np.where(rng.random(count) < 0.7, rng.uniform(5.0, 30.0, count), rng.uniform(0.5, 5.0, count))
    release = np.cumsum(rng.exponential(1.0 / rate, count)) if math.isfinite(rate) else np.zeros(count)
    rows = zip(cpu.tolist(), (cpu / speed_up).tolist(), release.tolist(), strict=True)
    return Stream.of((Task(f"t{i}", *row) for i, row in enumerate(rows)), cpus, gpus)


def slow_machines(cpus: int, gpus: int, speed_up: float = 1000.0) -> Stream:
    """Seed slide 8: one task more than GPUs, each `speed_up` times slower on a CPU, which is idle first."""
    return Stream.of((Task(f"t{i}", speed_up, 1.0) for i in range(gpus + 1)), cpus, gpus)


def just_below(cpus: int, gpus: int) -> Stream:
    """One task just below the threshold of `qa`: it goes to a CPU and takes s times as long, with all GPUs idle."""
    ratio = math.sqrt(cpus / gpus) * (1.0 - NEARLY)
    return Stream.of([Task("t0", ratio, 1.0)], cpus, gpus)


def at_threshold(cpus: int, gpus: int, grains: int = 200) -> Stream:
    """Many small tasks that are just worth a GPU while all CPUs idle, then one that takes as long as all of them.

    The optimum shares the small ones among both sides; `qa` comes close to s + 2 times that.
    """
    ratio = math.sqrt(cpus / gpus) * (1.0 + NEARLY)
    grain = 1.0 / grains
    # as much as fits into one second of k GPUs and m CPUs together, less the GPU that the last task needs
    count = int(((gpus - 1) + cpus / ratio) * grains)
    small = [Task(f"t{i}", ratio * grain, grain) for i in range(count)]
    return Stream.of([*small, Task("last", ratio, 1.0)], cpus, gpus)


def tempted(cpus: int, gpus: int) -> Stream:
    """For `list`: each task is `gpus` fast, but by now it would end a little earlier on a CPU, where it is slow."""
    tasks = []
    for number in range(cpus + gpus):
        waiting = max(number // gpus, 1)
        tasks.append(Task(f"t{number}", (waiting + 1.0) * (1.0 - NEARLY), 1.0))
    tasks += [Task(f"only{i}", math.inf, float(cpus + gpus)) for i in range(gpus)]
    return Stream.of(tasks, cpus, gpus)


TRAPS: Mapping[str, Callable[[int, int], Stream]] = {
    "slow_machines": slow_machines,
    "just_below": just_below,
    "at_threshold": at_threshold,
    "tempted": tempted,
}


def answer(rule: Rule, cpus: int, gpus: int, steps: int, rng: np.random.Generator) -> Stream:
    """An adaptive adversary: at each step tries several next tasks on the rule and keeps what hurts most.

    Tried are both sides of the threshold and tasks for the GPUs alone, in several sizes, one or one for each machine of
    a side, now or when the rule believes to be done. Greedy in the ratio makespan / certified bound.
    """
    threshold = math.sqrt(cpus / gpus)
    stream = Stream.of([], cpus, gpus)
    for _ in range(steps):
        end, now = run(stream, rule).makespan, stream.tasks[-1].release if stream.tasks else 0.0
        sizes = [1.0, max(end, 1.0), float(rng.uniform(0.1, 3.0))]
        ratios = [threshold * (1.0 - NEARLY), threshold * (1.0 + NEARLY), math.inf, float(rng.uniform(0.2, 30.0))]
        found: list[tuple[float, Stream]] = []
        for size, ratio, release, copies in product(sizes, ratios, sorted({now, end}), sorted({1, cpus, gpus})):
            first = len(stream.tasks)
            more = (Task(f"t{first + number}", size * ratio, size, release) for number in range(copies))
            longer = Stream((*stream.tasks, *more), cpus, gpus)
            found.append((run(longer, rule).ratio, longer))
        stream = max(found, key=lambda one: one[0])[1]
    return stream
