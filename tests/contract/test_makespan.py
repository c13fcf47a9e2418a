"""The contract of every makespan method: feasible, bounded, repeatable, independent of task order."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium_optimisers.makespan import generator, registry
from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.methods import annealing, genetic, list_scheduling
from podium_optimisers.makespan.schedule import MakespanPlan, MakespanSchedule, build_schedule
from podium_optimisers.makespan.testing import optimal_makespan, violations

INF = math.inf
CASES = {
    "one task": MakespanInstance.of([3.0], [2.0], 1, 1),
    "one machine": MakespanInstance.of([3.0, 1.0, 2.0], [1.0] * 3, 1, 0),
    "no GPU": MakespanInstance.of([7.0, 6.0, 5.0, 4.0, 3.0, 2.0], [INF] * 6, 3, 0),
    "no CPU": MakespanInstance.of([INF] * 6, [7.0, 6.0, 5.0, 4.0, 3.0, 2.0], 0, 3),
    "each its side": MakespanInstance.of([INF, 2.0, INF, 4.0, 5.0], [3.0, INF, 1.0, INF, 2.0], 2, 1),
    "more machines than tasks": MakespanInstance.of([9.0, 8.0, 7.0], [3.0, 9.0, 2.0], 5, 4),
    "very different times": MakespanInstance.of([1e-6, 1e6, 3.0, 5e5], [1e6, 2e-6, 4.0, 5e5], 2, 1),
    "typical, one GPU": generator.random_instance(9, 3, 1, np.random.default_rng(1)),
    "typical, two GPUs": generator.random_instance(10, 3, 2, np.random.default_rng(2)),
    **{name: trap for name, trap in generator.hard_instances().items() if trap.n <= 10},
}
OPTIMA = {name: optimal_makespan(instance) for name, instance in CASES.items()}
CLOSE = 1 + 1e-9


@pytest.fixture(autouse=True, scope="module")
def _few_steps() -> Iterator[None]:
    """Run a tenth of annealing's proposals, which is enough for a dozen tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annealing, "STEPS", annealing.STEPS // 10)
        yield


@functools.cache
def solved(method: str, case: str) -> MakespanSchedule:
    return registry.solve(method, CASES[case])


times = st.one_of(st.floats(0.01, 100.0), st.integers(1, 6).map(float))


@st.composite
def instances(draw: st.DrawFn) -> MakespanInstance:
    """Return at most 7 tasks, 3 CPUs and 2 GPUs, with one-sided tasks and equal times."""
    cpus, gpus = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2), (3, 0), (0, 2)]))
    both = st.tuples(times, times)
    one = st.one_of(st.tuples(times, st.just(INF)), st.tuples(st.just(INF), times))
    tasks = draw(st.lists(both if 0 in (cpus, gpus) else st.one_of(both, both, one), min_size=1, max_size=7))
    return MakespanInstance.of([cpu for cpu, _ in tasks], [gpu for _, gpu in tasks], cpus, gpus)


def assert_within_bounds(instance: MakespanInstance, schedule: MakespanSchedule, best: float) -> None:
    assert violations(instance, schedule) == []
    assert 0 < schedule.lower_bound <= best * CLOSE
    assert best <= schedule.makespan * CLOSE
    assert schedule.ratio >= 1
    ratio = registry.get_method(schedule.method).ratio
    if ratio is not None:
        assert schedule.makespan <= ratio(instance) * best * CLOSE


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", registry.METHODS)
def test_schedules_are_feasible_and_within_their_bounds(method: str, case: str) -> None:
    assert_within_bounds(CASES[case], solved(method, case), OPTIMA[case])


@pytest.mark.parametrize("method", registry.METHODS)
def test_the_same_seed_gives_the_same_schedule(method: str) -> None:
    case = "typical, two GPUs"
    assert registry.solve(method, CASES[case], seed=0) == solved(method, case)


@pytest.mark.parametrize("method", [name for name, method in registry.METHODS.items() if not method.order_matters])
def test_the_order_of_the_tasks_does_not_matter(method: str) -> None:
    instance = generator.random_instance(10, 2, 2, np.random.default_rng(3))
    order = np.random.default_rng(4).permutation(instance.n)
    first, second = registry.solve(method, instance), registry.solve(method, instance.reordered(order))
    assert second.makespan == pytest.approx(first.makespan, rel=1e-12)
    assert [second.assignment[i] for i in np.argsort(order)] == list(first.assignment)


@pytest.mark.parametrize("method", [name for name in registry.METHODS if name not in ("annealing", "genetic")])
@given(instance=instances())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_small_instances(method: str, instance: MakespanInstance) -> None:
    assert_within_bounds(instance, registry.solve(method, instance), optimal_makespan(instance))


@pytest.mark.parametrize("method", ["annealing", "genetic"])
@given(instance=instances(), seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_small_instances_in_few_steps(method: str, instance: MakespanInstance, seed: int) -> None:
    """Run the two slow methods with a small budget; they must not be worse than their start."""
    start, rng = list_scheduling.lpt(instance).machine_of, np.random.default_rng(seed)
    if method == "annealing":
        assignment = annealing.anneal(instance, start, rng, steps=300)
    else:
        assignment = genetic.evolve(instance, [start], rng, generations=4)
    schedule = build_schedule("lpt", instance, MakespanPlan(assignment), area_bound(instance)[0])
    assert_within_bounds(instance, schedule, optimal_makespan(instance))
    assert schedule.makespan <= float(instance.loads(start).max()) * CLOSE


@pytest.mark.parametrize(("method", "exact"), [("milp", 1e-6), ("dual", 0.01), ("annealing", 0.02), ("genetic", 0.02)])
@pytest.mark.parametrize("case", CASES)
def test_search_methods_find_the_optimum_of_small_instances(method: str, exact: float, case: str) -> None:
    assert solved(method, case).makespan <= OPTIMA[case] * (1 + exact)
