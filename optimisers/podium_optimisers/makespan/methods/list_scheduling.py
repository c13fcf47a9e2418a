"""List scheduling: methods that assign one task after another, and LPT within given sides.

`graham` is the classic rule: the machine that is free first takes the next task, even if it is slow at it. On CPUs and
GPUs its ratio has no bound (`generator.graham_trap`). The other methods choose the machine where the task ends first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from podium_optimisers.arrays import Bools, Floats, Ints
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.schedule import MakespanPlan


def graham(instance: MakespanInstance) -> MakespanPlan:
    """Return the list schedule: the machine that is free first takes the next task in the given order.

    Only machines that can run the task count; ties go to a CPU. O(n (m + k)). Source: Graham 1969.
    """
    table = instance.time_matrix()
    return MakespanPlan(_assign(table, np.arange(instance.n), np.where(np.isfinite(table), 0.0, np.inf)))


def greedy(instance: MakespanInstance) -> MakespanPlan:
    """Return the plan that assigns each task, in the given order, where it ends first. O(n (m + k))."""
    table = instance.time_matrix()
    return MakespanPlan(_assign(table, np.arange(instance.n), table))


def lpt(instance: MakespanInstance) -> MakespanPlan:
    """Return the plan of longest processing time first, each task where it ends first.

    A task's key is the shorter of its two times.
    """
    table = instance.time_matrix()
    return MakespanPlan(_assign(table, longest_first(np.minimum(instance.cpu, instance.gpu)), table))


def heft(instance: MakespanInstance) -> MakespanPlan:
    """Return the plan of heterogeneous earliest finish time.

    Source: Topcuoglu, Hariri, Wu (TPDS 2002). Without precedence constraints the upward rank is a task's mean time over
    the machines that can run it. The highest rank comes first; each task goes where it ends first.
    """
    table = instance.time_matrix()
    runs = np.isfinite(table)
    rank = np.where(runs, table, 0.0).sum(axis=1) / runs.sum(axis=1)
    return MakespanPlan(_assign(table, longest_first(rank), table))


def longest_first(keys: Floats) -> Ints:
    """Return the task numbers by falling key; ties keep their order."""
    return np.argsort(-keys, kind="stable")


def _assign(table: Floats, order: Ints, cost: Floats) -> Ints:
    """Assign each task of `order` to the machine with the least load + cost; ties go to the lowest number."""
    machine_of = np.empty(table.shape[0], dtype=np.int64)
    loads = np.zeros(table.shape[1])
    for task in order.tolist():
        machine = int((loads + cost[task]).argmin())
        machine_of[task] = machine
        loads[machine] += table[task, machine]
    return machine_of


def lpt_by_side(instance: MakespanInstance, on_gpu: Bools) -> Ints:
    """Return the machine of each task, shape (n,), by LPT within each side. O(n log n).

    It builds the shelves of the dual approximation: the longest tasks get a machine each, the middle ones share
    machines in pairs, and the short ones fill the rest.
    """
    machine_of = np.empty(instance.n, dtype=np.int64)
    sides = (
        (~on_gpu, instance.cpu, range(instance.cpus)),
        (on_gpu, instance.gpu, range(instance.cpus, instance.machines)),
    )
    for chosen, seconds, machines in sides:
        tasks = np.flatnonzero(chosen)
        order = tasks[np.argsort(-seconds[tasks], kind="stable")]
        machine_of[order] = list_schedule(seconds[order].tolist(), machines)
    return machine_of


def list_schedule(lengths: Sequence[float], machines: range) -> list[int]:
    """Return the machine of each length by list scheduling: the machine that is free first, in order.

    Ties go to the lowest number.
    """
    free = [(0.0, machine) for machine in machines]
    machine_numbers = []
    for length in lengths:
        load, machine = free[0]
        heapq.heapreplace(free, (load + length, machine))
        machine_numbers.append(machine)
    return machine_numbers
