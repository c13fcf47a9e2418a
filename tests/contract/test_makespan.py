"""Contract of every method for (Pm,Pk)||Cmax: feasible, bounded, repeatable, independent of the order of tasks."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium_optimisers.makespan import annealing, generator, genetic, lists, registry
from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import Instance
from podium_optimisers.makespan.schedule import Plan, Schedule, finish
from podium_optimisers.makespan.testing import faults, optimum

INF = math.inf
CASES = {
    "one task": Instance.of([3.0], [2.0], 1, 1),
    "one machine": Instance.of([3.0, 1.0, 2.0], [1.0] * 3, 1, 0),
    "no GPU": Instance.of([7.0, 6.0, 5.0, 4.0, 3.0, 2.0], [INF] * 6, 3, 0),
    "no CPU": Instance.of([INF] * 6, [7.0, 6.0, 5.0, 4.0, 3.0, 2.0], 0, 3),
    "each its side": Instance.of([INF, 2.0, INF, 4.0, 5.0], [3.0, INF, 1.0, INF, 2.0], 2, 1),
    "more machines than tasks": Instance.of([9.0, 8.0, 7.0], [3.0, 9.0, 2.0], 5, 4),
    "very different times": Instance.of([1e-6, 1e6, 3.0, 5e5], [1e6, 2e-6, 4.0, 5e5], 2, 1),
    "typical, one GPU": generator.typical(9, 3, 1, np.random.default_rng(1)),
    "typical, two GPUs": generator.typical(10, 3, 2, np.random.default_rng(2)),
    **{name: trap for name, trap in generator.traps().items() if trap.n <= 10},
}
OPTIMA = {name: optimum(instance) for name, instance in CASES.items()}
CLOSE = 1 + 1e-9


@pytest.fixture(autouse=True, scope="module")
def _shorter_annealing() -> Iterator[None]:
    """Reduce annealing to a tenth of its steps, which suffice for the optimum of a dozen tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annealing, "STEPS", annealing.STEPS // 10)
        yield


@functools.cache
def solve_case(method: str, case: str) -> Schedule:
    return registry.solve(method, CASES[case])


times = st.one_of(st.floats(0.01, 100.0), st.integers(1, 6).map(float))


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Draw at most 7 tasks, 3 CPUs and 2 GPUs; some tasks run on one side only, and some times are equal."""
    cpus, gpus = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2), (3, 0), (0, 2)]))
    both = st.tuples(times, times)
    single = st.one_of(st.tuples(times, st.just(INF)), st.tuples(st.just(INF), times))
    tasks = draw(st.lists(both if 0 in (cpus, gpus) else st.one_of(both, both, single), min_size=1, max_size=7))
    return Instance.of([cpu for cpu, _ in tasks], [gpu for _, gpu in tasks], cpus, gpus)


def check_schedule(instance: Instance, schedule: Schedule, best: float) -> None:
    assert faults(instance, schedule) == []
    assert 0 < schedule.lower_bound <= best * CLOSE
    assert best <= schedule.makespan * CLOSE
    assert schedule.ratio >= 1
    ratio = registry.find(schedule.method).ratio
    if ratio is not None:
        assert schedule.makespan <= ratio(instance) * best * CLOSE


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", registry.METHODS)
def test_schedules_are_feasible_and_within_their_bounds(method: str, case: str) -> None:
    check_schedule(CASES[case], solve_case(method, case), OPTIMA[case])


@pytest.mark.parametrize("method", registry.METHODS)
def test_the_same_seed_gives_the_same_schedule(method: str) -> None:
    case = "typical, two GPUs"
    assert registry.solve(method, CASES[case], seed=0) == solve_case(method, case)


@pytest.mark.parametrize("method", [name for name, method in registry.METHODS.items() if not method.ordered])
def test_the_order_of_the_tasks_does_not_matter(method: str) -> None:
    instance = generator.typical(10, 2, 2, np.random.default_rng(3))
    order = np.random.default_rng(4).permutation(instance.n)
    first, second = registry.solve(method, instance), registry.solve(method, instance.taken(order))
    assert second.makespan == pytest.approx(first.makespan, rel=1e-12)
    assert [second.assignment[i] for i in np.argsort(order)] == list(first.assignment)


@pytest.mark.parametrize("method", [name for name in registry.METHODS if name not in ("annealing", "genetic")])
@given(instance=instances())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_instances_are_solved(method: str, instance: Instance) -> None:
    check_schedule(instance, registry.solve(method, instance), optimum(instance))


@pytest.mark.parametrize("method", ["annealing", "genetic"])
@given(instance=instances(), seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_metaheuristics_improve_their_start(method: str, instance: Instance, seed: int) -> None:
    """Annealing and the genetic algorithm, with a small budget, are never worse than their start."""
    start, rng = lists.lpt(instance).machine_of, np.random.default_rng(seed)
    if method == "annealing":
        machine_of = annealing.anneal(instance, start, rng, steps=300)
    else:
        machine_of = genetic.evolve(instance, [start], rng, generations=4)
    schedule = finish("lpt", instance, Plan(machine_of), area_bound(instance)[0])
    check_schedule(instance, schedule, optimum(instance))
    assert schedule.makespan <= float(instance.loads(start).max()) * CLOSE


@pytest.mark.parametrize(
    ("method", "tolerance"), [("milp", 1e-6), ("dual", 0.01), ("annealing", 0.02), ("genetic", 0.02)]
)
@pytest.mark.parametrize("case", CASES)
def test_search_methods_find_the_optimum_of_small_instances(method: str, tolerance: float, case: str) -> None:
    assert solve_case(method, case).makespan <= OPTIMA[case] * (1 + tolerance)
