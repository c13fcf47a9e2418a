"""Hard streams for online rules: random ones, adversarial instances and an adaptive adversary.

The benchmark and the property tests check the proven ratios against them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product

import numpy as np

from podium_optimisers.online.rules import OnlineRule, run_rule
from podium_optimisers.online.stream import Stream, Task

EPSILON = 1e-6  # relative distance of a task from a rule's threshold


def random_stream(rng: np.random.Generator, count: int, cpus: int, gpus: int, rate: float) -> Stream:
    """Generate a random stream with Poisson arrivals.

    CPU times are uniform in 10..100 s. On a GPU 70 % of the tasks are 5 to 30 times faster, the others 0.5 to 5 times.
    `rate`: tasks per second; inf releases all tasks at 0.
    """
    cpu = rng.uniform(10.0, 100.0, count)
    speed_up = np.where(rng.random(count) < 0.7, rng.uniform(5.0, 30.0, count), rng.uniform(0.5, 5.0, count))
    release = np.cumsum(rng.exponential(1.0 / rate, count)) if math.isfinite(rate) else np.zeros(count)
    rows = zip(cpu.tolist(), (cpu / speed_up).tolist(), release.tolist(), strict=True)
    return Stream.of((Task(f"t{i}", *row) for i, row in enumerate(rows)), cpus, gpus)


def slow_machines(cpus: int, gpus: int, speed_up: float = 1000.0) -> Stream:
    """Return the instance that defeats `graham`: one task more than GPUs, and an idle, slow CPU.

    Each task is `speed_up` times slower on a CPU. Source: slides of Kedad-Sidhoum et al. (2013).
    """
    return Stream.of((Task(f"t{i}", speed_up, 1.0) for i in range(gpus + 1)), cpus, gpus)


def just_below(cpus: int, gpus: int) -> Stream:
    """Return one task just below the threshold of `qa`.

    `qa` sends it to a CPU, where it takes s times as long, while all GPUs are idle.
    """
    ratio = math.sqrt(cpus / gpus) * (1.0 - EPSILON)
    return Stream.of([Task("t0", ratio, 1.0)], cpus, gpus)


def at_threshold(cpus: int, gpus: int, grains: int = 200) -> Stream:
    """Return small tasks that `qa` just sends to GPUs, then one task as long as all of them.

    All CPUs idle meanwhile. The optimum shares the small tasks among both sides; `qa` comes close to s + 2 times that.
    """
    ratio = math.sqrt(cpus / gpus) * (1.0 + EPSILON)
    grain = 1.0 / grains
    # the work of one second on k GPUs and m CPUs together, except the GPU that the last task needs
    count = int(((gpus - 1) + cpus / ratio) * grains)
    small = [Task(f"t{i}", ratio * grain, grain) for i in range(count)]
    return Stream.of([*small, Task("last", ratio, 1.0)], cpus, gpus)


def tempted(cpus: int, gpus: int) -> Stream:
    """Return the instance that misleads `list`: each task would end slightly earlier on a slow CPU.

    The tasks are fast on GPUs, where tasks that can run only there arrive last.
    """
    tasks = []
    for number in range(cpus + gpus):
        waiting = max(number // gpus, 1)
        tasks.append(Task(f"t{number}", (waiting + 1.0) * (1.0 - EPSILON), 1.0))
    tasks += [Task(f"only{i}", math.inf, float(cpus + gpus)) for i in range(gpus)]
    return Stream.of(tasks, cpus, gpus)


HARD_STREAMS: Mapping[str, Callable[[int, int], Stream]] = {
    "slow_machines": slow_machines,
    "just_below": just_below,
    "at_threshold": at_threshold,
    "tempted": tempted,
}


def adaptive_adversary(rule: OnlineRule, cpus: int, gpus: int, steps: int, rng: np.random.Generator) -> Stream:
    """Build a stream by an adaptive adversary: at each step keep the next tasks that hurt the rule most.

    Candidates are tasks on both sides of the threshold and tasks for the GPUs alone, in several sizes. There is one of
    them, or one for each machine of a side; they are released now or when the rule expects to finish. The choice is
    greedy in the ratio makespan / certified bound.
    """
    threshold = math.sqrt(cpus / gpus)
    stream = Stream.of([], cpus, gpus)
    for _ in range(steps):
        end, now = run_rule(stream, rule).makespan, stream.tasks[-1].release if stream.tasks else 0.0
        sizes = [1.0, max(end, 1.0), float(rng.uniform(0.1, 3.0))]
        ratios = [threshold * (1.0 - EPSILON), threshold * (1.0 + EPSILON), math.inf, float(rng.uniform(0.2, 30.0))]
        candidates: list[tuple[float, Stream]] = []
        for size, ratio, release, copies in product(sizes, ratios, sorted({now, end}), sorted({1, cpus, gpus})):
            first = len(stream.tasks)
            more = (Task(f"t{first + number}", size * ratio, size, release) for number in range(copies))
            longer = Stream((*stream.tasks, *more), cpus, gpus)
            candidates.append((run_rule(longer, rule).ratio, longer))
        stream = max(candidates, key=lambda candidate: candidate[0])[1]
    return stream
