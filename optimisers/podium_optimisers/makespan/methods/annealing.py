"""Simulated annealing on assignments (Kirkpatrick, Gelatt, Vecchi 1983) with moves and exchanges.

Half of the proposals take their task from the machine that ends last, because others rarely change the makespan. The
energy is the makespan plus a small share of the root mean square of the loads, which gives steps on a plateau a
direction.
"""

from __future__ import annotations

import math

import numpy as np

from podium_optimisers.arrays import Ints
from podium_optimisers.makespan.instance import MakespanInstance

STEPS = 200_000  # proposals for up to 2000 tasks; 100 per task above
START_TEMPERATURE, END_TEMPERATURE = 0.1, 0.0005  # relative to the makespan of the start
LOAD_WEIGHT = 0.1  # weight of the root mean square of the loads in the energy


def anneal(instance: MakespanInstance, start: Ints, rng: np.random.Generator, steps: int | None = None) -> Ints:
    """Return the best assignment visited, shape (n,), never worse than `start`. O(steps x machines)."""
    steps = max(STEPS, 100 * instance.n) if steps is None else steps
    table = instance.time_matrix().tolist()
    machine_of, loads = start.tolist(), instance.loads(start).tolist()
    machines = len(loads)
    end = max(loads)
    squares = sum(load * load for load in loads)
    energy = end + LOAD_WEIGHT * math.sqrt(squares / machines)
    best, best_end = list(machine_of), end
    members = [[task for task, where in enumerate(machine_of) if where == machine] for machine in range(machines)]
    if machines == 1:
        return start
    cooling = (END_TEMPERATURE / START_TEMPERATURE) ** (1.0 / max(1, steps - 1))
    temperature = START_TEMPERATURE * end
    tasks = rng.integers(0, instance.n, size=(steps, 2)).tolist()
    targets = rng.integers(0, machines, size=steps).tolist()
    chances = rng.random((steps, 3)).tolist()
    for (task, other), target, (from_last, exchange, threshold) in zip(tasks, targets, chances, strict=True):
        temperature *= cooling
        on_last_machine = members[loads.index(end)] if from_last < 0.5 else []
        if on_last_machine:
            task = on_last_machine[task % len(on_last_machine)]
        source = machine_of[task]
        target_machine = machine_of[other] if exchange < 0.5 else target
        if target_machine == source:
            continue
        left, right = loads[source] - table[task][source], loads[target_machine] + table[task][target_machine]
        if exchange < 0.5:
            left += table[other][source]
            right -= table[other][target_machine]
        old_left, old_right = loads[source], loads[target_machine]
        if left == math.inf or right == math.inf:
            continue
        loads[source], loads[target_machine] = left, right
        new_end = max(loads)
        new_squares = squares + left * left + right * right - old_left * old_left - old_right * old_right
        new_energy = new_end + LOAD_WEIGHT * math.sqrt(max(0.0, new_squares) / machines)
        if new_energy > energy and threshold >= math.exp((energy - new_energy) / temperature):
            loads[source], loads[target_machine] = old_left, old_right
            continue
        _move(members, machine_of, task, target_machine)
        if exchange < 0.5:
            _move(members, machine_of, other, source)
        end, squares, energy = new_end, new_squares, new_energy
        if end < best_end:
            best, best_end = list(machine_of), end
    assignment = np.array(best, dtype=np.int64)
    # incremental loads accumulate rounding errors, so compare recomputed loads
    return assignment if instance.loads(assignment).max() < instance.loads(start).max() else start


def _move(members: list[list[int]], machine_of: list[int], task: int, machine: int) -> None:
    """Move a task to a machine."""
    members[machine_of[task]].remove(task)
    members[machine].append(task)
    machine_of[task] = machine
