"""HeteroPrio with spoliation, on its own virtual time. Source: Beaumont, Eyraud-Dubois, Kumar (IPDPS 2017).

Tasks wait in one queue by acceleration. A GPU that is free takes the most accelerated, a CPU the least. When the queue
is empty, a free machine looks at the tasks that run on the other side, the one that ends last first, and restarts the
first that it would end sooner (spoliation); the time spent on it is lost. Without spoliation there is no bound; with it
the ratio is 1.618 for one CPU and one GPU, 2.618 for m and one, 2 + sqrt 2 for m and k.
"""

from __future__ import annotations

import heapq
from collections import deque

import numpy as np

from podium_optimisers.makespan.instance import Floats, Instance
from podium_optimisers.makespan.schedule import Plan

GAIN = 1e-12  # relative: to end sooner by the last bits of a float is no reason to restart


def solve(instance: Instance) -> Plan:
    """O((n + restarts) (m + k)). The starts are those of the runs that were not given up."""
    table = instance.table()
    queue = _queue(instance)
    running: dict[int, tuple[float, int]] = {}  # machine -> (end, task)
    machine_of = np.full(instance.n, -1, dtype=np.int64)
    starts = np.zeros(instance.n)
    # GPUs ask first at the same instant: they have the most to choose
    free = [(0.0, machine < instance.cpus, machine) for machine in range(instance.machines)]
    heapq.heapify(free)
    while free:
        now, is_cpu, machine = heapq.heappop(free)
        if machine in running:
            if running[machine][0] > now:
                continue  # an event of a run that was given up
            del running[machine]
        task = _taken(queue, table, machine, is_cpu)
        if task is None:
            victim = _victim(running, table, now, machine, instance.cpus)
            if victim is None:
                continue
            task = running.pop(victim)[1]
            heapq.heappush(free, (now, victim < instance.cpus, victim))
        machine_of[task], starts[task] = machine, now
        running[machine] = (now + float(table[task, machine]), task)
        heapq.heappush(free, (running[machine][0], is_cpu, machine))
    return Plan(machine_of, starts)


def _queue(instance: Instance) -> deque[int]:
    """The least accelerated task first; the longer on a CPU first among equals."""
    return deque(np.lexsort((-instance.cpu, instance.acceleration())).tolist())


def _taken(queue: deque[int], table: Floats, machine: int, is_cpu: bool) -> int | None:
    """The next task of a free machine. Tasks that run on one side only stand at that side's end of the queue."""
    if not queue or not np.isfinite(table[queue[0 if is_cpu else -1], machine]):
        return None
    return queue.popleft() if is_cpu else queue.pop()


def _victim(running: dict[int, tuple[float, int]], table: Floats, now: float, machine: int, cpus: int) -> int | None:
    """The machine of the other side whose task `machine` would end sooner: of these, the one that ends last."""
    rivals = [(end, other, task) for other, (end, task) in running.items() if (other < cpus) != (machine < cpus)]
    for end, other, task in sorted(rivals, reverse=True):
        if now + float(table[task, machine]) < end * (1 - GAIN):
            return other
    return None
