"""Yardsticks for tests, and for anyone who writes a method: the optimum of small instances, and what breaks a schedule.

Nothing here uses the code it judges: no packing, no bound, no solver.
"""

from __future__ import annotations

import itertools
import math

from podium_optimisers.makespan.instance import Instance
from podium_optimisers.makespan.schedule import Schedule

MOST = 10  # tasks: the table has 3^n entries for each machine


def optimum(instance: Instance) -> float:
    """The least makespan in seconds, by dynamic programming over subsets. O(3^n (m + k)), for n <= MOST."""
    if instance.n > MOST:
        raise ValueError(f"instance: {instance.n} tasks are too many to enumerate; give at most {MOST}")
    everyone = (1 << instance.n) - 1
    sums = {
        side: [sum(times[j] for j in range(instance.n) if part >> j & 1) for part in range(everyone + 1)]
        for side, times in (("cpu", instance.cpu.tolist()), ("gpu", instance.gpu.tolist()))
    }
    best = [0.0] + [math.inf] * everyone  # least makespan of each set on the machines so far
    for machine in range(instance.machines):
        own = sums["cpu" if machine < instance.cpus else "gpu"]
        best = [min(max(best[whole ^ part], own[part]) for part in _parts(whole)) for whole in range(everyone + 1)]
    return best[everyone]


def _parts(whole: int) -> list[int]:
    """All subsets of a set of bits, the empty one too."""
    found, part = [0], whole
    while part:
        found.append(part)
        part = (part - 1) & whole
    return found


def faults(instance: Instance, schedule: Schedule) -> list[str]:
    """What is wrong with a schedule, in words; empty if nothing is."""
    found = []
    runs: dict[int, list[tuple[float, float]]] = {}
    for task, (machine, start) in enumerate(zip(schedule.assignment, schedule.starts, strict=True)):
        seconds = float((instance.cpu if machine < instance.cpus else instance.gpu)[task])
        if not (0 <= machine < instance.machines and math.isfinite(seconds) and start >= 0):
            found.append(f"task {task} is on machine {machine} for {seconds} s from {start}")
        runs.setdefault(machine, []).append((start, start + seconds))
    if len(schedule.assignment) != instance.n:
        found.append(f"{len(schedule.assignment)} of {instance.n} tasks are placed")
    for machine, turns in runs.items():
        for (_, end), (start, _) in itertools.pairwise(sorted(turns)):
            if start < end - 1e-9 * schedule.makespan:
                found.append(f"machine {machine} begins a task at {start} while another ends at {end}")
    last = max(end for turns in runs.values() for _, end in turns)
    if not math.isclose(last, schedule.makespan, rel_tol=1e-9):
        found.append(f"the makespan is said to be {schedule.makespan}, the last task ends at {last}")
    return found
