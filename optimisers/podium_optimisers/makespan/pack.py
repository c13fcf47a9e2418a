"""Longest processing time first within each side, once it is known which tasks go to the GPUs.

Used by every method that decides on sides alone. It builds the shelves of the dual approximation: the longest tasks get
a machine each, the middle ones share machines in pairs, the short ones fill what is left.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from podium_optimisers.makespan.instance import Bools, Instance, Ints


def pack(instance: Instance, on_gpu: Bools) -> Ints:
    """Machine of each task, shape (n,). O(n log n)."""
    machine_of = np.empty(instance.n, dtype=np.int64)
    sides = (
        (~on_gpu, instance.cpu, range(instance.cpus)),
        (on_gpu, instance.gpu, range(instance.cpus, instance.machines)),
    )
    for chosen, seconds, machines in sides:
        tasks = np.flatnonzero(chosen)
        order = tasks[np.argsort(-seconds[tasks], kind="stable")]
        machine_of[order] = fill(seconds[order].tolist(), machines)
    return machine_of


def fill(lengths: Sequence[float], machines: range) -> list[int]:
    """List scheduling: each length in turn on the machine that is free first, the lowest number among equals."""
    free = [(0.0, machine) for machine in machines]
    taken = []
    for length in lengths:
        load, machine = free[0]
        heapq.heapreplace(free, (load + length, machine))
        taken.append(machine)
    return taken
