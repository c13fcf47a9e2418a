"""All makespan methods by name, with their proven ratios, and one function that runs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from podium_optimisers.arrays import Ints
from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import MakespanError, MakespanInstance
from podium_optimisers.makespan.methods import (
    annealing,
    balanced_estimate,
    dada,
    dual,
    genetic,
    heteroprio,
    list_scheduling,
    lp_rounding,
    milp,
)
from podium_optimisers.makespan.schedule import MakespanPlan, MakespanSchedule, build_schedule

Solver = Callable[[MakespanInstance, np.random.Generator], MakespanPlan]
RatioBound = Callable[[MakespanInstance], float]


class UnknownMethodError(MakespanError):
    """There is no method of this name."""

    code = "UnknownMethod"


@dataclass(frozen=True, slots=True)
class MakespanMethod:
    """A method. `ratio`: proven makespan over optimum, None without a proof.

    `order_matters`: whether the order of the tasks affects the result.
    """

    name: str
    description: str
    solve: Solver
    ratio: RatioBound | None = None
    order_matters: bool = False


def _heteroprio_ratio(instance: MakespanInstance) -> float:
    """Return the ratio of Beaumont et al. 2017 for (1,1), (m,1) and (m,k).

    The sides are symmetric: one GPU and m CPUs have the same ratio as one CPU and k GPUs.
    """
    fewer = min(instance.cpus, instance.gpus)
    if fewer == 0:
        return 2.0  # list scheduling on identical machines
    if instance.machines == 2:
        return (1 + math.sqrt(5)) / 2
    return (3 + math.sqrt(5)) / 2 if fewer == 1 else 2 + math.sqrt(2)


def _starts(instance: MakespanInstance) -> list[Ints]:
    """Return the start assignments of annealing and evolution: one from LPT and one from the LP."""
    return [list_scheduling.lpt(instance).machine_of, lp_rounding.solve(instance).machine_of]


def _annealed(instance: MakespanInstance, rng: np.random.Generator) -> MakespanPlan:
    """Return the better plan of simulated annealing from both starts."""
    return _best(instance, [annealing.anneal(instance, start, rng) for start in _starts(instance)])


def _best(instance: MakespanInstance, assignments: list[Ints]) -> MakespanPlan:
    """Return the plan of the assignment with the least makespan."""
    return MakespanPlan(min(assignments, key=lambda machine_of: float(instance.loads(machine_of).max())))


METHODS: Mapping[str, MakespanMethod] = MappingProxyType(
    {
        method.name: method
        for method in (
            MakespanMethod(
                "dual",
                "dual approximation (4/3; 4/3 + 1/(3k)), then local search",
                dual.dual_with_local_search,
                lambda instance: dual.approximation_ratio(instance) * (1 + dual.GAP),
            ),
            MakespanMethod(
                "shelves",
                "the dual approximation alone",
                lambda instance, _: dual.dual_approximation(instance),
                lambda instance: dual.approximation_ratio(instance) * (1 + dual.GAP),
            ),
            MakespanMethod(
                "milp",
                f"the optimum by HiGHS for up to about 40 tasks; else the best result within {milp.TIME_LIMIT:g} s",
                lambda instance, rng: milp.solve(instance, dual.dual_with_local_search(instance, rng)),
                lambda instance: dual.approximation_ratio(instance) * (1 + dual.GAP),
            ),
            MakespanMethod(
                "lp",
                "LP relaxation with rounding (2)",
                lambda instance, _: lp_rounding.solve(instance),
                lambda _: 2.0,
            ),
            MakespanMethod(
                "dada",
                "affinity, then dual approximation (2.5)",
                lambda instance, _: dada.solve(instance),
                lambda _: (2 + dada.ALPHA) * (1 + dada.GAP),
            ),
            MakespanMethod(
                "balanced", "BalancedEstimate, reconstructed", lambda instance, _: balanced_estimate.solve(instance)
            ),
            MakespanMethod(
                "heteroprio",
                "a queue by acceleration, with spoliation (1.618 to 3.41)",
                lambda instance, _: heteroprio.solve(instance),
                _heteroprio_ratio,
            ),
            MakespanMethod(
                "heft",
                "highest mean time first, where the task ends first",
                lambda instance, _: list_scheduling.heft(instance),
            ),
            MakespanMethod(
                "lpt", "longest first, where the task ends first", lambda instance, _: list_scheduling.lpt(instance)
            ),
            MakespanMethod(
                "greedy",
                "in the given order, where the task ends first",
                lambda instance, _: list_scheduling.greedy(instance),
                order_matters=True,
            ),
            MakespanMethod(
                "list",
                "in the given order, to the machine that is free first (no bound)",
                lambda instance, _: list_scheduling.graham(instance),
                order_matters=True,
            ),
            MakespanMethod("annealing", "simulated annealing, seeded", _annealed, lambda _: 2.0),
            MakespanMethod(
                "genetic",
                "a genetic algorithm with local search, seeded",
                lambda instance, rng: MakespanPlan(genetic.evolve(instance, _starts(instance), rng)),
                lambda _: 2.0,
            ),
        )
    }
)


def get_method(name: str) -> MakespanMethod:
    """Return the method of this name. Raise UnknownMethodError if there is none."""
    if name not in METHODS:
        raise UnknownMethodError(f"method: {name!r} does not exist; use one of {', '.join(METHODS)}")
    return METHODS[name]


def solve(name: str, instance: MakespanInstance, seed: int = 0) -> MakespanSchedule:
    """Return the checked schedule of one method, with a lower bound.

    The same arguments give the same schedule, except for `milp` if the time limit (TIME_LIMIT) ends it before the
    proof. Unless the order of the tasks is part of a method, the tasks are sorted first, so the result does not depend
    on their order.
    """
    method = get_method(name)
    order = np.arange(instance.n) if method.order_matters else np.lexsort((instance.gpu, instance.cpu))
    plan = method.solve(instance.reordered(order), np.random.default_rng(seed))
    inverse = np.argsort(order)
    restored = MakespanPlan(plan.machine_of[inverse], None if plan.starts is None else plan.starts[inverse], plan.bound)
    return build_schedule(name, instance, restored, area_bound(instance)[0])
