"""A genetic algorithm on assignments: one gene a task, its machine; vectorised over the population; seeded.

Tournaments of two, uniform crossover, mutation, a repair that moves one task of each child off the machine that ends
last, elitism; one child of every generation is taught by local search (a memetic algorithm, Moscato 1989).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from podium_optimisers.makespan.instance import Floats, Instance, Ints
from podium_optimisers.makespan.local_search import improve

POPULATION = 60
MOST, LEAST, TASKS = 1000, 100, 100_000  # generations: TASKS / n of them, within these limits
IMMIGRANTS = 0.6  # share of genes that differ at random from a given start in the first generation


def evolve(
    instance: Instance, starts: Sequence[Ints], rng: np.random.Generator, generations: int | None = None
) -> Ints:
    """The best assignment of all generations, shape (n,): never worse than the best of `starts`."""
    table = instance.table()
    n = instance.n
    generations = min(MOST, max(LEAST, TASKS // n)) if generations is None else generations
    people = np.array([starts[i % len(starts)] for i in range(POPULATION)])
    changed = rng.random((POPULATION, n)) < IMMIGRANTS
    changed[: len(starts)] = False
    child, gene = np.nonzero(changed)
    people[child, gene] = _anywhere(table, gene, rng)
    ends = _ends(table, people)
    for _ in range(generations):
        rivals = rng.integers(0, POPULATION, (2, POPULATION, 2))
        parents = np.where(ends[rivals[..., 0]] <= ends[rivals[..., 1]], rivals[..., 0], rivals[..., 1])
        children = np.where(rng.random((POPULATION, n)) < 0.5, people[parents[0]], people[parents[1]])
        child, gene = np.nonzero(rng.random((POPULATION, n)) < 1.0 / n)
        children[child, gene] = _anywhere(table, gene, rng)
        children = _repaired(table, children, rng)
        children[-1] = people[int(ends.argmin())]
        # anyone but the best: who is taught again and again fills the population with copies
        pupil = int(rng.integers(0, POPULATION - 1))
        children[pupil] = improve(instance, children[pupil], table)
        people, ends = children, _ends(table, children)
    return improve(instance, people[int(ends.argmin())], table)


def _loads(table: Floats, people: Ints) -> Floats:
    """Load of each machine for each assignment, shape (people, machines)."""
    count, machines = people.shape[0], table.shape[1]
    cells = people + machines * np.arange(count)[:, None]
    seconds = table[np.arange(table.shape[0]), people]
    loads = np.bincount(cells.ravel(), seconds.ravel(), count * machines).astype(np.float64, copy=False)
    return loads.reshape(count, machines)


def _ends(table: Floats, people: Ints) -> Floats:
    ends: Floats = _loads(table, people).max(axis=1)
    return ends


def _anywhere(table: Floats, tasks: Ints, rng: np.random.Generator) -> Ints:
    """A random machine for each of `tasks`, among those that can run it."""
    able = np.isfinite(table).cumsum(axis=1)[tasks]
    drawn = np.floor(rng.random(tasks.size) * able[:, -1])
    found: Ints = (able <= drawn[:, None]).sum(axis=1)
    return found


def _repaired(table: Floats, people: Ints, rng: np.random.Generator) -> Ints:
    """One random task of the machine that ends last goes where it ends first, in every assignment."""
    loads = _loads(table, people)
    last = loads.argmax(axis=1)
    lottery = np.where(people == last[:, None], rng.random(people.shape), -1.0)
    task = lottery.argmax(axis=1)
    rows = np.arange(people.shape[0])
    loads[rows, last] -= table[task, last]
    people = people.copy()
    people[rows, task] = (loads + table[task]).argmin(axis=1)
    return people
