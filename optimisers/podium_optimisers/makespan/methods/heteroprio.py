"""HeteroPrio with spoliation. Source: Beaumont, Eyraud-Dubois, Kumar (IPDPS 2017).

Tasks wait in one queue by acceleration. A free GPU takes the most accelerated task, a free CPU the least accelerated.
When the queue is empty, a free machine checks the tasks that run on the other side, the last to end first. It restarts
the first task that it would end sooner (spoliation). The work already done on that task is lost.

Without spoliation there is no bound. With it, the ratio is 1.618 for one CPU and one GPU, 2.618 for m CPUs and one GPU,
and 2 + sqrt 2 for m CPUs and k GPUs.
"""

from __future__ import annotations

import heapq
from collections import deque

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.schedule import MakespanPlan

MIN_GAIN = 1e-12  # relative: a gain by rounding does not justify a restart


def solve(instance: MakespanInstance) -> MakespanPlan:
    """Return the plan with the start of each task's last run. O((n + restarts) (m + k))."""
    table = instance.time_matrix()
    queue = _queue(instance)
    running: dict[int, tuple[float, int]] = {}  # machine -> (end, task)
    machine_of = np.full(instance.n, -1, dtype=np.int64)
    starts = np.zeros(instance.n)
    # at the same instant GPUs come first
    free = [(0.0, machine < instance.cpus, machine) for machine in range(instance.machines)]
    heapq.heapify(free)
    while free:
        now, is_cpu, machine = heapq.heappop(free)
        if machine in running:
            if running[machine][0] > now:
                continue  # the event belongs to a run that was aborted
            del running[machine]
        task = _next_task(queue, table, machine, is_cpu)
        if task is None:
            victim = _victim(running, table, now, machine, instance.cpus)
            if victim is None:
                continue
            task = running.pop(victim)[1]
            heapq.heappush(free, (now, victim < instance.cpus, victim))
        machine_of[task], starts[task] = machine, now
        running[machine] = (now + float(table[task, machine]), task)
        heapq.heappush(free, (running[machine][0], is_cpu, machine))
    return MakespanPlan(machine_of, starts)


def _queue(instance: MakespanInstance) -> deque[int]:
    """Return the tasks by rising acceleration; ties start with the longer task on a CPU."""
    return deque(np.lexsort((-instance.cpu, instance.acceleration())).tolist())


def _next_task(queue: deque[int], table: Floats, machine: int, is_cpu: bool) -> int | None:
    """Remove and return the next task for a free machine, or None.

    Tasks that run on one side only are at that side's end of the queue.
    """
    if not queue or not np.isfinite(table[queue[0 if is_cpu else -1], machine]):
        return None
    return queue.popleft() if is_cpu else queue.pop()


def _victim(running: dict[int, tuple[float, int]], table: Floats, now: float, machine: int, cpus: int) -> int | None:
    """Return the machine of the other side whose task `machine` would end sooner, or None.

    Among several such machines it is the one that ends last.
    """
    candidates = [(end, other, task) for other, (end, task) in running.items() if (other < cpus) != (machine < cpus)]
    for end, other, task in sorted(candidates, reverse=True):
        if now + float(table[task, machine]) < end * (1 - MIN_GAIN):
            return other
    return None
