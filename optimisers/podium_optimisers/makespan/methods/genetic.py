"""A genetic algorithm on assignments: one gene for each task, its machine; vectorised and seeded.

It uses tournaments of two, uniform crossover, mutation and elitism. A repair step moves one task of each child away
from the machine that ends last. One child of every generation is improved by local search (a memetic algorithm, Moscato
1989).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from podium_optimisers.arrays import Floats, Ints
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.methods.local_search import improve

POPULATION = 60
MAX_GENERATIONS, MIN_GENERATIONS, GENE_BUDGET = 1000, 100, 100_000  # GENE_BUDGET / n generations, within these limits
RANDOM_GENE_SHARE = 0.6  # share of random genes in the first generation


def evolve(
    instance: MakespanInstance, starts: Sequence[Ints], rng: np.random.Generator, generations: int | None = None
) -> Ints:
    """Return the best assignment of all generations, shape (n,), never worse than the best of `starts`."""
    table = instance.time_matrix()
    n = instance.n
    generations = min(MAX_GENERATIONS, max(MIN_GENERATIONS, GENE_BUDGET // n)) if generations is None else generations
    population = np.array([starts[i % len(starts)] for i in range(POPULATION)])
    changed = rng.random((POPULATION, n)) < RANDOM_GENE_SHARE
    changed[: len(starts)] = False
    child, gene = np.nonzero(changed)
    population[child, gene] = _random_machines(table, gene, rng)
    makespans = _makespans(table, population)
    for _ in range(generations):
        contestants = rng.integers(0, POPULATION, (2, POPULATION, 2))
        parents = np.where(
            makespans[contestants[..., 0]] <= makespans[contestants[..., 1]], contestants[..., 0], contestants[..., 1]
        )
        children = np.where(rng.random((POPULATION, n)) < 0.5, population[parents[0]], population[parents[1]])
        child, gene = np.nonzero(rng.random((POPULATION, n)) < 1.0 / n)
        children[child, gene] = _random_machines(table, gene, rng)
        children = _repair(table, children, rng)
        children[-1] = population[int(makespans.argmin())]
        # never the elite child: improving it in each generation would fill the population with copies
        learner = int(rng.integers(0, POPULATION - 1))
        children[learner] = improve(instance, children[learner], table)
        population, makespans = children, _makespans(table, children)
    return improve(instance, population[int(makespans.argmin())], table)


def _loads(table: Floats, population: Ints) -> Floats:
    """Return the load of each machine for each assignment, shape (population, machines)."""
    count, machines = population.shape[0], table.shape[1]
    cells = population + machines * np.arange(count)[:, None]
    seconds = table[np.arange(table.shape[0]), population]
    loads = np.bincount(cells.ravel(), seconds.ravel(), count * machines).astype(np.float64, copy=False)
    return loads.reshape(count, machines)


def _makespans(table: Floats, population: Ints) -> Floats:
    """Return the makespan of each assignment, shape (population,)."""
    makespans: Floats = _loads(table, population).max(axis=1)
    return makespans


def _random_machines(table: Floats, tasks: Ints, rng: np.random.Generator) -> Ints:
    """Return a random machine for each of `tasks`, among those that can run it."""
    feasible = np.isfinite(table).cumsum(axis=1)[tasks]
    drawn = np.floor(rng.random(tasks.size) * feasible[:, -1])
    machines: Ints = (feasible <= drawn[:, None]).sum(axis=1)
    return machines


def _repair(table: Floats, population: Ints, rng: np.random.Generator) -> Ints:
    """Move one random task in every assignment away from the machine that ends last.

    It goes to the machine where it ends first.
    """
    loads = _loads(table, population)
    last = loads.argmax(axis=1)
    draws = np.where(population == last[:, None], rng.random(population.shape), -1.0)
    task = draws.argmax(axis=1)
    rows = np.arange(population.shape[0])
    loads[rows, last] -= table[task, last]
    population = population.copy()
    population[rows, task] = (loads + table[task]).argmin(axis=1)
    return population
