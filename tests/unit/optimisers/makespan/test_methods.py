"""Properties of single methods: list scheduling's bad case, spoliation, local search, solver, errors."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from podium_optimisers.makespan import generator, registry
from podium_optimisers.makespan.bounds import area_bound
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.methods import annealing, heteroprio, list_scheduling, local_search, milp
from podium_optimisers.makespan.schedule import InfeasibleError, MakespanPlan, build_schedule, check_feasible
from podium_optimisers.makespan.testing import MAX_TASKS, optimal_makespan

INF = math.inf


@pytest.fixture(autouse=True, scope="module")
def _few_steps() -> Iterator[None]:
    """Run a tenth of annealing's proposals, which is enough for a dozen tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annealing, "STEPS", annealing.STEPS // 10)
        yield


@pytest.mark.parametrize("factor", [2.0, 10.0, 1e3, 1e6])
def test_list_scheduling_has_no_bound(factor: float) -> None:
    """List scheduling can be as bad as the largest speed-up; the other methods solve the instance."""
    trap = generator.graham_trap(factor)
    assert optimal_makespan(trap) == 1.0
    assert registry.solve("list", trap).makespan == factor
    for name in set(registry.METHODS) - {"list"}:
        assert registry.solve(name, trap).makespan == 1.0


def test_list_scheduling_can_be_worse_than_the_largest_speed_up() -> None:
    """Two short tasks come first, so the long one starts late on its slower side."""
    instance = MakespanInstance.of([1.0, 1.0, 1.2], [1.0, 1.0, 1.0], 1, 1)
    speed_up = float(np.maximum(instance.acceleration(), 1 / instance.acceleration()).max())
    assert registry.solve("list", instance).makespan / area_bound(instance)[0] > speed_up


def test_lpt_reaches_grahams_worst_case() -> None:
    trap = generator.hard_instances()["lpt"]
    assert optimal_makespan(trap) == 9.0
    assert registry.solve("lpt", trap).makespan == 11.0


def test_heft_ranks_by_the_mean_over_machines() -> None:
    # the means over two CPUs and a GPU are 4, 5, 3: the second task comes first and takes the GPU
    instance = MakespanInstance.of([5.0, 6.0, 4.0], [2.0, 3.0, 1.0], 2, 1)
    assert list_scheduling.heft(instance).machine_of.tolist() == [0, 2, 1]


def test_heteroprio_restarts_a_task_where_it_ends_sooner() -> None:
    # the CPU takes the least accelerated task for 10 s; the GPU is free after 1 s and needs 4 s for it
    instance = MakespanInstance.of([10.0, 8.0], [4.0, 1.0], 1, 1)
    plan = heteroprio.solve(instance)
    assert plan.machine_of.tolist() == [1, 1]
    assert plan.starts is not None
    assert plan.starts.tolist() == [1.0, 0.0]


def test_heteroprio_does_not_restart_without_gain() -> None:
    instance = MakespanInstance.of([5.0, 8.0], [4.0, 1.0], 1, 1)
    assert heteroprio.solve(instance).machine_of.tolist() == [0, 1]


@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(0, 4), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_local_search_is_never_worse_and_ends_in_a_local_optimum(seed: int, n: int, cpus: int, gpus: int) -> None:
    rng = np.random.default_rng(seed)
    instance = generator.random_instance(n, cpus, gpus, rng)
    start = rng.integers(0, instance.machines, n)
    improved = local_search.improve(instance, start)
    end = float(instance.loads(improved).max())
    assert end <= float(instance.loads(start).max())
    last = int(instance.loads(improved).argmax())
    for task in np.flatnonzero(improved == last).tolist():
        for machine in range(instance.machines):
            other = improved.copy()
            other[task] = machine
            loads = instance.loads(other)
            assert machine == last or max(loads[last], loads[machine]) >= end * (1 - 1e-8)
    again = local_search.iterated_local_search(instance, start, 3, 0.0, np.random.default_rng(seed))
    assert float(instance.loads(again).max()) <= end * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_search_methods_reach_the_optimum(seed: int) -> None:
    instance = generator.random_instance(MAX_TASKS, 3, 1, np.random.default_rng(seed))
    best = optimal_makespan(instance)
    for name in ("dual", "annealing", "genetic", "milp"):
        assert registry.solve(name, instance).makespan <= 1.01 * best


@pytest.mark.parametrize("seed", range(4))
def test_the_seed_determines_the_annealing_result(seed: int) -> None:
    instance = generator.random_instance(60, 5, 2, np.random.default_rng(seed))
    start = list_scheduling.lpt(instance).machine_of
    runs = [annealing.anneal(instance, start, np.random.default_rng(i), 2000).tolist() for i in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("seed", range(8))
def test_the_area_bound_agrees_with_the_linear_program(seed: int) -> None:
    """Compare with HiGHS: the makespan is a variable, with one row for each side.

    Only tasks that are too long for a side can make the bound higher.
    """
    rng = np.random.default_rng(seed)
    instance = generator.random_instance(25, int(rng.integers(1, 6)), int(rng.integers(1, 4)), rng)
    rows = [[*instance.cpu, -instance.cpus], [*-instance.gpu, -instance.gpus]]
    limits = [(0, 1)] * instance.n + [(0, None)]
    solution = linprog([0.0] * instance.n + [1.0], A_ub=rows, b_ub=[0.0, -instance.gpu.sum()], bounds=limits)
    lower, upper = area_bound(instance)
    assert lower >= solution.fun * (1 - 1e-7)
    assert lower <= upper <= lower * (1 + 1e-12)
    if solution.fun > max(instance.cpu.max(), instance.gpu.max()):  # no task is too long for a side
        assert lower == pytest.approx(solution.fun, rel=1e-7)


def test_milp_returns_its_start_or_better_when_time_is_over() -> None:
    instance = generator.random_instance(60, 6, 2, np.random.default_rng(0))
    start = list_scheduling.lpt(instance)
    plan = milp.solve(instance, start, time_limit=0.0)
    assert float(instance.loads(plan.machine_of).max()) <= float(instance.loads(start.machine_of).max())
    assert plan.bound >= area_bound(instance)[0]


def test_the_error_for_an_unknown_method_lists_the_known_ones() -> None:
    with pytest.raises(registry.UnknownMethodError, match="'nonsense' does not exist; use one of dual, "):
        registry.solve("nonsense", generator.graham_trap(2.0))


@pytest.mark.parametrize(
    ("machine_of", "starts", "message"),
    [
        ([0, 0], [0.0, 2.9], "two tasks at once"),
        ([0, 0], [-1.0, 3.0], "starts before time 0"),
        ([0, 5], [0.0, 0.0], "is outside 0..1"),
        ([0, 1], [0.0, 0.0], "task t1 is on a machine that cannot run it"),
        ([0], [0.0], "give each task one"),
    ],
)
def test_infeasible_schedules_are_refused(machine_of: list[int], starts: list[float], message: str) -> None:
    instance = MakespanInstance.of([3.0, 4.0], [1.0, INF], 1, 1)
    with pytest.raises(InfeasibleError, match=message):
        check_feasible(instance, np.array(machine_of), np.array(starts))


def test_tasks_of_a_machine_run_without_gaps_longest_first() -> None:
    instance = MakespanInstance.of([1.0, 3.0, 2.0, 9.0], [1.0] * 4, 2, 1)
    schedule = build_schedule("x", instance, MakespanPlan(np.array([0, 0, 0, 2])), 0.5)
    assert schedule.starts == (5.0, 0.0, 3.0, 0.0)
    assert (schedule.makespan, schedule.lower_bound, schedule.ratio) == (6.0, 0.5, 12.0)
