"""Simulated annealing on assignments (Kirkpatrick, Gelatt, Vecchi 1983): moves and exchanges, seeded.

Half of the proposals take their task from the machine that ends last: others rarely change the makespan. The energy is
the makespan plus a small share of the root mean square of the loads, so that steps on a plateau have a direction.
"""

from __future__ import annotations

import math

import numpy as np

from podium_optimisers.makespan.instance import Instance, Ints

STEPS = 200_000  # proposals for up to 2000 tasks; 100 per task beyond
HOT, COLD = 0.1, 0.0005  # first and last temperature, as shares of the start's makespan
EVEN = 0.1  # weight of the root mean square of the loads in the energy


def anneal(instance: Instance, start: Ints, rng: np.random.Generator, steps: int | None = None) -> Ints:
    """The best assignment met, shape (n,): never worse than `start`. O(steps x machines)."""
    steps = max(STEPS, 100 * instance.n) if steps is None else steps
    table = instance.table().tolist()
    place, loads = start.tolist(), instance.loads(start).tolist()
    machines = len(loads)
    end = max(loads)
    squares = sum(load * load for load in loads)
    energy = end + EVEN * math.sqrt(squares / machines)
    best, best_end = list(place), end
    members = [[task for task, where in enumerate(place) if where == machine] for machine in range(machines)]
    if machines == 1:
        return start
    cooling = (COLD / HOT) ** (1.0 / max(1, steps - 1))
    heat = HOT * end
    tasks = rng.integers(0, instance.n, size=(steps, 2)).tolist()
    targets = rng.integers(0, machines, size=steps).tolist()
    chances = rng.random((steps, 3)).tolist()
    for (task, other), target, (from_last, exchange, luck) in zip(tasks, targets, chances, strict=True):
        heat *= cooling
        crowd = members[loads.index(end)] if from_last < 0.5 else []
        if crowd:
            task = crowd[task % len(crowd)]
        home = place[task]
        away = place[other] if exchange < 0.5 else target
        if away == home:
            continue
        left, right = loads[home] - table[task][home], loads[away] + table[task][away]
        if exchange < 0.5:
            left += table[other][home]
            right -= table[other][away]
        old_left, old_right = loads[home], loads[away]
        if left == math.inf or right == math.inf:
            continue
        loads[home], loads[away] = left, right
        new_end = max(loads)
        new_squares = squares + left * left + right * right - old_left * old_left - old_right * old_right
        new_energy = new_end + EVEN * math.sqrt(max(0.0, new_squares) / machines)
        if new_energy > energy and luck >= math.exp((energy - new_energy) / heat):
            loads[home], loads[away] = old_left, old_right
            continue
        _moved(members, place, task, away)
        if exchange < 0.5:
            _moved(members, place, other, home)
        end, squares, energy = new_end, new_squares, new_energy
        if end < best_end:
            best, best_end = list(place), end
    found = np.array(best, dtype=np.int64)
    # loads drift by the last bits of many sums: compare what is real
    return found if instance.loads(found).max() < instance.loads(start).max() else start


def _moved(members: list[list[int]], place: list[int], task: int, machine: int) -> None:
    members[place[task]].remove(task)
    members[machine].append(task)
    place[task] = machine
