"""Moves and swaps that relieve the machine that ends last, with seeded kicks when none is left. Used after `dual`, by
`genetic`, and by whoever has a schedule that may be better.

A step takes the best of: a task of the last machine to another machine, or its exchange for a task of another machine.
It is taken only if both machines then end before the last one did, so the loads, sorted, fall with every step.
"""

from __future__ import annotations

import numpy as np

from podium_optimisers.makespan.instance import Floats, Instance, Ints

LEAST_GAIN = 1e-9  # relative: smaller gains are noise of the sums
CELLS = 4_000_000  # exchanges looked at in a step: a bound on its memory
KICK = 8  # tasks that a kick throws elsewhere


def improve(instance: Instance, machine_of: Ints, table: Floats | None = None) -> Ints:
    """A local optimum of moves and swaps, never worse than what was given; shape (n,). O(n^2 / machines) a step."""
    table = instance.table() if table is None else table
    machine_of = machine_of.copy()
    loads = instance.loads(machine_of)
    while _step(table, machine_of, loads):
        pass
    return machine_of


def kicked(instance: Instance, machine_of: Ints, kicks: int, bound: float, rng: np.random.Generator) -> Ints:
    """`improve`, then `kicks` times: KICK random tasks elsewhere, improve, keep it if no worse. Ends at `bound`."""
    table = instance.table()
    best = improve(instance, machine_of, table)
    end = float(instance.loads(best).max())
    for _ in range(kicks):
        if end <= bound * (1 + LEAST_GAIN):
            break
        trial = best.copy()
        last = np.flatnonzero(trial == int(instance.loads(trial).argmax()))
        moved = np.append(rng.choice(last), rng.integers(0, instance.n, KICK - 1))
        trial[moved] = rng.integers(0, instance.machines, KICK)
        if not np.isfinite(table[moved, trial[moved]]).all():
            continue
        trial = improve(instance, trial, table)
        reached = float(instance.loads(trial).max())
        if reached <= end:
            best, end = trial, reached
    return best


def _step(table: Floats, machine_of: Ints, loads: Floats) -> bool:
    """Carries out the best move or swap in place; False if none relieves the machine that ends last."""
    last = int(loads.argmax())
    end = loads[last]
    mine = np.flatnonzero(machine_of == last)[: max(1, CELLS // machine_of.size)]
    others = np.flatnonzero(machine_of != last)
    lighter = (end - table[mine, last])[:, None]
    moves = np.maximum(lighter, loads + table[mine])
    moves[:, last] = np.inf
    best = int(moves.argmin())
    reached, exchange = float(moves.flat[best]), False
    if others.size:
        homes = machine_of[others]
        at_home = loads[homes] - table[others, homes]
        swaps = np.maximum(lighter + table[others, last], at_home + table[np.ix_(mine, homes)])
        found = int(swaps.argmin())
        if swaps.flat[found] < reached:
            best, reached, exchange = found, float(swaps.flat[found]), True
    if not reached < end * (1 - LEAST_GAIN):
        return False
    if exchange:
        task, other = mine[best // others.size], others[best % others.size]
        home = int(machine_of[other])
        machine_of[other] = last
    else:
        task, home = mine[best // loads.size], best % loads.size
    machine_of[task] = home
    for machine in (last, home):  # summed afresh: a machine without tasks must have no load at all
        loads[machine] = table[machine_of == machine, machine].sum()
    return True
