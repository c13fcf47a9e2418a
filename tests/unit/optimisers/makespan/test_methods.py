"""What is particular to single methods: the trap of lists, spoliation, the search, the solver, the refusals."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from podium_optimisers.makespan import annealing, generator, heteroprio, lists, local_search, milp, registry
from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import Instance
from podium_optimisers.makespan.schedule import InfeasibleError, Plan, check, finish
from podium_optimisers.makespan.testing import MOST, optimum

INF = math.inf


@pytest.fixture(autouse=True, scope="module")
def _few_steps() -> Iterator[None]:
    """A tenth of the proposals that annealing makes: a dozen tasks need no more to come to the optimum."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annealing, "STEPS", annealing.STEPS // 10)
        yield


@pytest.mark.parametrize("factor", [2.0, 10.0, 1e3, 1e6])
def test_list_scheduling_has_no_bound(factor: float) -> None:
    """The lemma of slide 8: as bad as the largest speed-up, whatever that is. The others are not caught."""
    trap = generator.list_trap(factor)
    assert optimum(trap) == 1.0
    assert registry.solve("list", trap).makespan == factor
    for name in set(registry.METHODS) - {"list"}:
        assert registry.solve(name, trap).makespan == 1.0


def test_list_scheduling_can_be_worse_than_the_largest_speed_up() -> None:
    """Two short tasks first: the long one then starts late on the wrong side."""
    instance = Instance.of([1.0, 1.0, 1.2], [1.0, 1.0, 1.0], 1, 1)
    speed_up = float(np.maximum(instance.acceleration(), 1 / instance.acceleration()).max())
    assert registry.solve("list", instance).makespan / area_bound(instance)[0] > speed_up


def test_lpt_meets_grahams_worst_case() -> None:
    trap = generator.traps()["lpt"]
    assert optimum(trap) == 9.0
    assert registry.solve("lpt", trap).makespan == 11.0


def test_heft_ranks_by_the_mean_over_machines() -> None:
    # means on two CPUs and a GPU: 4, 5, 3: the second task chooses first, the GPU; the others gain nothing there
    instance = Instance.of([5.0, 6.0, 4.0], [2.0, 3.0, 1.0], 2, 1)
    assert lists.heft(instance).machine_of.tolist() == [0, 2, 1]


def test_heteroprio_restarts_a_task_where_it_ends_sooner() -> None:
    # the CPU takes the least accelerated task for 10 s; the GPU is free after 1 s and does it in 4 s
    instance = Instance.of([10.0, 8.0], [4.0, 1.0], 1, 1)
    plan = heteroprio.solve(instance)
    assert plan.machine_of.tolist() == [1, 1]
    assert plan.starts is not None
    assert plan.starts.tolist() == [1.0, 0.0]


def test_heteroprio_does_not_restart_without_gain() -> None:
    instance = Instance.of([5.0, 8.0], [4.0, 1.0], 1, 1)
    assert heteroprio.solve(instance).machine_of.tolist() == [0, 1]


@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(0, 4), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_local_search_is_never_worse_and_ends_in_a_local_optimum(seed: int, n: int, cpus: int, gpus: int) -> None:
    rng = np.random.default_rng(seed)
    instance = generator.typical(n, cpus, gpus, rng)
    start = rng.integers(0, instance.machines, n)
    found = local_search.improve(instance, start)
    end = float(instance.loads(found).max())
    assert end <= float(instance.loads(start).max())
    last = int(instance.loads(found).argmax())
    for task in np.flatnonzero(found == last).tolist():
        for machine in range(instance.machines):
            other = found.copy()
            other[task] = machine
            loads = instance.loads(other)
            assert machine == last or max(loads[last], loads[machine]) >= end * (1 - 1e-8)
    again = local_search.kicked(instance, start, 3, 0.0, np.random.default_rng(seed))
    assert float(instance.loads(again).max()) <= end * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_searches_reach_the_optimum_where_the_shelves_do_not(seed: int) -> None:
    instance = generator.typical(MOST, 3, 1, np.random.default_rng(seed))
    best = optimum(instance)
    for name in ("dual", "annealing", "genetic", "milp"):
        assert registry.solve(name, instance).makespan <= 1.01 * best


@pytest.mark.parametrize("seed", range(4))
def test_seeds_count(seed: int) -> None:
    instance = generator.typical(60, 5, 2, np.random.default_rng(seed))
    start = lists.lpt(instance).machine_of
    runs = [annealing.anneal(instance, start, np.random.default_rng(i), 2000).tolist() for i in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("seed", range(8))
def test_the_area_bound_is_that_of_the_linear_program(seed: int) -> None:
    """Least L by HiGHS, the makespan a variable, one row a side. Only barred tasks can make the bound higher."""
    rng = np.random.default_rng(seed)
    instance = generator.typical(25, int(rng.integers(1, 6)), int(rng.integers(1, 4)), rng)
    rows = [[*instance.cpu, -instance.cpus], [*-instance.gpu, -instance.gpus]]
    limits = [(0, 1)] * instance.n + [(0, None)]
    found = linprog([0.0] * instance.n + [1.0], A_ub=rows, b_ub=[0.0, -instance.gpu.sum()], bounds=limits)
    lower, upper = area_bound(instance)
    assert lower >= found.fun * (1 - 1e-7)
    assert lower <= upper <= lower * (1 + 1e-12)
    if found.fun > max(instance.cpu.max(), instance.gpu.max()):  # nobody is barred
        assert lower == pytest.approx(found.fun, rel=1e-7)


def test_milp_out_of_time_gives_its_start_or_better() -> None:
    instance = generator.typical(60, 6, 2, np.random.default_rng(0))
    start = lists.lpt(instance)
    plan = milp.solve(instance, start, time_limit=0.0)
    assert float(instance.loads(plan.machine_of).max()) <= float(instance.loads(start.machine_of).max())
    assert plan.bound >= area_bound(instance)[0]


def test_unknown_methods_are_named_with_the_known() -> None:
    with pytest.raises(registry.UnknownMethodError, match="'nonsense'; take one of dual, "):
        registry.solve("nonsense", generator.list_trap(2.0))


@pytest.mark.parametrize(
    ("machine_of", "starts", "told"),
    [
        ([0, 0], [0.0, 2.9], "two tasks at once"),
        ([0, 0], [-1.0, 3.0], "before time 0"),
        ([0, 5], [0.0, 0.0], "outside 0..1"),
        ([0, 1], [0.0, 0.0], "task t1 was put where it cannot run"),
        ([0], [0.0], "give each task one"),
    ],
)
def test_infeasible_schedules_are_refused(machine_of: list[int], starts: list[float], told: str) -> None:
    instance = Instance.of([3.0, 4.0], [1.0, INF], 1, 1)
    with pytest.raises(InfeasibleError, match=told):
        check(instance, np.array(machine_of), np.array(starts))


def test_starts_follow_one_another_longest_first() -> None:
    instance = Instance.of([1.0, 3.0, 2.0, 9.0], [1.0] * 4, 2, 1)
    schedule = finish("x", instance, Plan(np.array([0, 0, 0, 2])), 0.5)
    assert schedule.starts == (5.0, 0.0, 3.0, 0.0)
    assert (schedule.makespan, schedule.lower_bound, schedule.ratio) == (6.0, 0.5, 12.0)
