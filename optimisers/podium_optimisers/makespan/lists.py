"""Methods that take the tasks one after another: list scheduling, greedy, LPT, HEFT.

`graham` is the one of the seed's slide 8: the machine that is free first takes the next task, however bad it is at it,
so its ratio has no bound (`generator.list_trap`). The others ask where the task would end first.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.makespan.instance import Floats, Instance, Ints
from podium_optimisers.makespan.schedule import Plan


def graham(instance: Instance) -> Plan:
    """List scheduling in the order given: the next task to whoever of those that can run it is free first (a CPU first
    among equals). O(n (m + k)). Source: Graham 1969; lemma of slide 8.
    """
    table = instance.table()
    return Plan(_placed(table, np.arange(instance.n), np.where(np.isfinite(table), 0.0, np.inf)))


def greedy(instance: Instance) -> Plan:
    """Each task in the order given where it ends first. O(n (m + k))."""
    table = instance.table()
    return Plan(_placed(table, np.arange(instance.n), table))


def lpt(instance: Instance) -> Plan:
    """Longest processing time first, by the shorter of a task's two times, each where it ends first."""
    table = instance.table()
    return Plan(_placed(table, longest_first(np.minimum(instance.cpu, instance.gpu)), table))


def heft(instance: Instance) -> Plan:
    """Heterogeneous earliest finish time (Topcuoglu, Hariri, Wu, TPDS 2002). Without precedence the upward rank is the
    mean of a task's times over the machines that can run it; the highest rank first, where it ends first.
    """
    table = instance.table()
    runs = np.isfinite(table)
    rank = np.where(runs, table, 0.0).sum(axis=1) / runs.sum(axis=1)
    return Plan(_placed(table, longest_first(rank), table))


def longest_first(keys: Floats) -> Ints:
    """Task numbers by falling key, in the order given among equals."""
    return np.argsort(-keys, kind="stable")


def _placed(table: Floats, order: Ints, judged: Floats) -> Ints:
    """Each task of `order` to the machine with the least load + `judged`, the lowest number among equals."""
    machine_of = np.empty(table.shape[0], dtype=np.int64)
    loads = np.zeros(table.shape[1])
    for task in order.tolist():
        machine = int((loads + judged[task]).argmin())
        machine_of[task] = machine
        loads[machine] += table[task, machine]
    return machine_of
