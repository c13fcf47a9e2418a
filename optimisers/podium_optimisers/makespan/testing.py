"""Checks for tests and for authors of methods: optima of small instances and violated constraints.

Nothing here uses the code under test: no packing, no bound, no solver.
"""

from __future__ import annotations

import itertools
import math

from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.schedule import MakespanSchedule

MAX_TASKS = 10  # the table has 3^n entries for each machine


def optimal_makespan(instance: MakespanInstance) -> float:
    """Return the least makespan in seconds by dynamic programming over subsets. O(3^n (m + k))."""
    if instance.n > MAX_TASKS:
        raise ValueError(f"instance: {instance.n} tasks are too many to enumerate; give at most {MAX_TASKS} tasks")
    all_tasks = (1 << instance.n) - 1
    sums = {
        side: [sum(times[j] for j in range(instance.n) if part >> j & 1) for part in range(all_tasks + 1)]
        for side, times in (("cpu", instance.cpu.tolist()), ("gpu", instance.gpu.tolist()))
    }
    best = [0.0] + [math.inf] * all_tasks  # least makespan of each subset on the machines so far
    for machine in range(instance.machines):
        own = sums["cpu" if machine < instance.cpus else "gpu"]
        best = [min(max(best[whole ^ part], own[part]) for part in _parts(whole)) for whole in range(all_tasks + 1)]
    return best[all_tasks]


def _parts(whole: int) -> list[int]:
    """Return all subsets of a set of bits, including the empty set."""
    sentences, part = [0], whole
    while part:
        sentences.append(part)
        part = (part - 1) & whole
    return sentences


def violations(instance: MakespanInstance, schedule: MakespanSchedule) -> list[str]:
    """Return a sentence for each violated constraint; none if the schedule is feasible."""
    sentences = []
    runs: dict[int, list[tuple[float, float]]] = {}
    for task, (machine, start) in enumerate(zip(schedule.assignment, schedule.starts, strict=True)):
        seconds = float((instance.cpu if machine < instance.cpus else instance.gpu)[task])
        if not (0 <= machine < instance.machines and math.isfinite(seconds) and start >= 0):
            sentences.append(f"task {task} is on machine {machine} for {seconds} s from {start}")
        runs.setdefault(machine, []).append((start, start + seconds))
    if len(schedule.assignment) != instance.n:
        sentences.append(f"{len(schedule.assignment)} of {instance.n} tasks are assigned")
    for machine, intervals in runs.items():
        for (_, end), (start, _) in itertools.pairwise(sorted(intervals)):
            if start < end - 1e-9 * schedule.makespan:
                sentences.append(f"machine {machine} starts a task at {start} while another ends at {end}")
    last = max(end for intervals in runs.values() for _, end in intervals)
    if not math.isclose(last, schedule.makespan, rel_tol=1e-9):
        sentences.append(f"the makespan is {schedule.makespan}, but the last task ends at {last}")
    return sentences
