"""Every method by name, what it promises, and the one way to run it. Used by `podium optimise`, benchmarks, tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from podium_optimisers.makespan import (
    annealing,
    balanced,
    dada,
    dual,
    genetic,
    heteroprio,
    lists,
    lp_rounding,
    milp,
)
from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import Instance, Ints, MakespanError
from podium_optimisers.makespan.schedule import Plan, Schedule, finish

Solve = Callable[[Instance, np.random.Generator], Plan]
Ratio = Callable[[Instance], float]


class UnknownMethodError(MakespanError):
    code = "UnknownMethod"


@dataclass(frozen=True, slots=True)
class Method:
    """`ratio`: proven makespan over optimum, None where none is; `ordered`: the order of the tasks counts."""

    name: str
    says: str
    solve: Solve
    ratio: Ratio | None = None
    ordered: bool = False


def _heteroprio_ratio(instance: Instance) -> float:
    """Beaumont et al. 2017: (1,1), (m,1), (m,k). One GPU and m CPUs, or one CPU and k GPUs: the sides are alike."""
    fewer = min(instance.cpus, instance.gpus)
    if fewer == 0:
        return 2.0  # a list on machines that are alike
    if instance.machines == 2:
        return (1 + math.sqrt(5)) / 2
    return (3 + math.sqrt(5)) / 2 if fewer == 1 else 2 + math.sqrt(2)


def _starts(instance: Instance) -> list[Ints]:
    """Where annealing and evolution begin: one schedule that looks at ends, one that looks at sides."""
    return [lists.lpt(instance).machine_of, lp_rounding.solve(instance).machine_of]


def _annealed(instance: Instance, rng: np.random.Generator) -> Plan:
    return _best(instance, [annealing.anneal(instance, start, rng) for start in _starts(instance)])


def _best(instance: Instance, found: list[Ints]) -> Plan:
    return Plan(min(found, key=lambda machine_of: float(instance.loads(machine_of).max())))


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method(
                "dual",
                "dual approximation (4/3; 4/3 + 1/(3k)), then local search",
                dual.searched,
                lambda instance: dual.proven_ratio(instance) * (1 + dual.GAP),
            ),
            Method(
                "shelves",
                "the dual approximation alone",
                lambda instance, _: dual.shelved(instance),
                lambda instance: dual.proven_ratio(instance) * (1 + dual.GAP),
            ),
            Method(
                "milp",
                f"the optimum by HiGHS, for up to about 40 tasks; the best found in {milp.TIME_LIMIT:g} s otherwise",
                lambda instance, rng: milp.solve(instance, dual.searched(instance, rng)),
                lambda instance: dual.proven_ratio(instance) * (1 + dual.GAP),
            ),
            Method(
                "lp",
                "LP relaxation with rounding (2)",
                lambda instance, _: lp_rounding.solve(instance),
                lambda _: 2.0,
            ),
            Method(
                "dada",
                "affinity, then dual approximation (2.5)",
                lambda instance, _: dada.solve(instance),
                lambda _: (2 + dada.ALPHA) * (1 + dada.GAP),
            ),
            Method("balanced", "BalancedEstimate, reconstructed", lambda instance, _: balanced.solve(instance)),
            Method(
                "heteroprio",
                "a queue by acceleration, with spoliation (1.618 to 3.41)",
                lambda instance, _: heteroprio.solve(instance),
                _heteroprio_ratio,
            ),
            Method("heft", "highest mean time first, where it ends first", lambda instance, _: lists.heft(instance)),
            Method("lpt", "longest first, where it ends first", lambda instance, _: lists.lpt(instance)),
            Method(
                "greedy",
                "in the order given, where it ends first",
                lambda instance, _: lists.greedy(instance),
                ordered=True,
            ),
            Method(
                "list",
                "in the order given, to whoever is free first (no bound)",
                lambda instance, _: lists.graham(instance),
                ordered=True,
            ),
            Method("annealing", "simulated annealing, seeded", _annealed, lambda _: 2.0),
            Method(
                "genetic",
                "a genetic algorithm with local search, seeded",
                lambda instance, rng: Plan(genetic.evolve(instance, _starts(instance), rng)),
                lambda _: 2.0,
            ),
        )
    }
)


def find(name: str) -> Method:
    """Raises UnknownMethodError."""
    if name not in METHODS:
        raise UnknownMethodError(f"method: there is no {name!r}; take one of {', '.join(METHODS)}")
    return METHODS[name]


def solve(name: str, instance: Instance, seed: int = 0) -> Schedule:
    """The schedule of one method, checked, with a lower bound. The same arguments give the same schedule, except for
    `milp` where it stops by wall clock (TIME_LIMIT) before it has proved the optimum.

    Unless the order of the tasks is part of a method, they are sorted first: the answer does not depend on their order.
    """
    method = find(name)
    order = np.arange(instance.n) if method.ordered else np.lexsort((instance.gpu, instance.cpu))
    plan = method.solve(instance.taken(order), np.random.default_rng(seed))
    back = np.argsort(order)
    restored = Plan(plan.machine_of[back], None if plan.starts is None else plan.starts[back], plan.bound)
    return finish(name, instance, restored, area_bound(instance)[0])
