"""Local search by moves and swaps that relieve the machine that ends last, with random restarts.

A step takes the best of two kinds of change: moving a task from the last machine to another one, or swapping it for a
task of another machine. A change is accepted only if both machines then end before the last one did, so the sorted
loads decrease with every step.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.arrays import Floats, Ints
from podium_optimisers.makespan.instance import MakespanInstance

MIN_GAIN = 1e-9  # relative: smaller gains are rounding errors
MAX_SWAPS = 4_000_000  # swaps evaluated in a step, which limits its memory
KICK_SIZE = 8  # tasks that a kick (perturbation) moves at random


def improve(instance: MakespanInstance, machine_of: Ints, table: Floats | None = None) -> Ints:
    """Return a local optimum of moves and swaps, never worse than the input, shape (n,).

    A step takes O(n^2 / machines).
    """
    table = instance.time_matrix() if table is None else table
    machine_of = machine_of.copy()
    loads = instance.loads(machine_of)
    while _step(table, machine_of, loads):
        pass
    return machine_of


def iterated_local_search(
    instance: MakespanInstance, machine_of: Ints, kicks: int, bound: float, rng: np.random.Generator
) -> Ints:
    """Return the result of iterated local search: kick, improve, keep the result if it is no worse.

    A kick moves KICK_SIZE random tasks to random machines. The search stops after `kicks` kicks or at `bound`.
    """
    table = instance.time_matrix()
    best = improve(instance, machine_of, table)
    end = float(instance.loads(best).max())
    for _ in range(kicks):
        if end <= bound * (1 + MIN_GAIN):
            break
        trial = best.copy()
        last = np.flatnonzero(trial == int(instance.loads(trial).argmax()))
        moved = np.append(rng.choice(last), rng.integers(0, instance.n, KICK_SIZE - 1))
        trial[moved] = rng.integers(0, instance.machines, KICK_SIZE)
        if not np.isfinite(table[moved, trial[moved]]).all():
            continue
        trial = improve(instance, trial, table)
        reached = float(instance.loads(trial).max())
        if reached <= end:
            best, end = trial, reached
    return best


def _step(table: Floats, machine_of: Ints, loads: Floats) -> bool:
    """Apply the best move or swap in place. Return False if none relieves the machine that ends last."""
    last = int(loads.argmax())
    end = loads[last]
    own_tasks = np.flatnonzero(machine_of == last)[: max(1, MAX_SWAPS // machine_of.size)]
    others = np.flatnonzero(machine_of != last)
    lighter = (end - table[own_tasks, last])[:, None]
    moves = np.maximum(lighter, loads + table[own_tasks])
    moves[:, last] = np.inf
    best = int(moves.argmin())
    reached, exchange = float(moves.flat[best]), False
    if others.size:
        homes = machine_of[others]
        at_home = loads[homes] - table[others, homes]
        swaps = np.maximum(lighter + table[others, last], at_home + table[np.ix_(own_tasks, homes)])
        best_swap = int(swaps.argmin())
        if swaps.flat[best_swap] < reached:
            best, reached, exchange = best_swap, float(swaps.flat[best_swap]), True
    if not reached < end * (1 - MIN_GAIN):
        return False
    if exchange:
        task, other = own_tasks[best // others.size], others[best % others.size]
        home = int(machine_of[other])
        machine_of[other] = last
    else:
        task, home = own_tasks[best // loads.size], best % loads.size
    machine_of[task] = home
    for machine in (last, home):  # recompute the sums: a machine without tasks must have a load of exactly 0
        loads[machine] = table[machine_of == machine, machine].sum()
    return True
