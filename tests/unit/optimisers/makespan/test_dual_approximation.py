"""The dual approximation: valid rejections, proven ratios, sparse program equal to the dense one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.arrays import Bools
from podium_optimisers.makespan import generator
from podium_optimisers.makespan.bounds import area_bound, by_acceleration, fractional_split
from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.methods import dada, dual, milp, shelves
from podium_optimisers.makespan.methods.list_scheduling import lpt_by_side
from podium_optimisers.makespan.relaxation import build_rows
from podium_optimisers.makespan.testing import optimal_makespan

CLOSE = 1 + 1e-8
Make = Callable[[int, int, int, np.random.Generator], MakespanInstance]
times = st.one_of(st.floats(0.1, 50.0), st.integers(1, 6).map(float))
machines = st.sampled_from([(1, 1), (2, 1), (4, 1), (2, 2), (1, 3), (3, 3), (3, 0), (0, 3)])
tasks = st.lists(st.tuples(times, times), min_size=1, max_size=7)


def makespan(instance: MakespanInstance, on_gpu: Bools) -> float:
    return float(instance.loads(lpt_by_side(instance, on_gpu)).max())


@given(tasks, machines, st.floats(0.3, 1.5))
@settings(max_examples=150, deadline=None)
def test_a_rejection_is_valid_and_an_accepted_guess_keeps_its_ratio(
    times: list[tuple[float, float]], sides: tuple[int, int], factor: float
) -> None:
    instance = MakespanInstance.of([cpu for cpu, _ in times], [gpu for _, gpu in times], *sides)
    best = optimal_makespan(instance)
    guess = best * factor
    for step, ratio in ((shelves.dual_step, dual.approximation_ratio(instance)), (dada.step, 2 + dada.ALPHA)):
        on_gpu = step(instance, guess)
        if on_gpu is None:
            assert guess < best * CLOSE
        else:
            assert makespan(instance, on_gpu) <= ratio * guess * CLOSE


@given(tasks, machines)
@settings(max_examples=100, deadline=None)
def test_the_optimum_itself_is_never_rejected(times: list[tuple[float, float]], sides: tuple[int, int]) -> None:
    instance = MakespanInstance.of([cpu for cpu, _ in times], [gpu for _, gpu in times], *sides)
    guess = optimal_makespan(instance) * (1 + 1e-12)
    assert shelves.dual_step(instance, guess) is not None
    assert dada.step(instance, guess) is not None
    assert fractional_split(instance, by_acceleration(instance), guess) is not None


def dense_table_accepts(instance: MakespanInstance, guess: float) -> bool:
    """Run the paper's program as printed, with all states (mu, mu', kappa, kappa', N) and their least CPU work."""
    rows = build_rows(instance, guess)
    if rows is None:
        return False
    states = {(0, 0, 0, 0, 0): 0.0}
    for task in range(instance.n):
        following: dict[tuple[int, int, int, int, int], float] = {}
        for (mu, mu_, kappa, kappa_, area), work in states.items():
            long, middle = int(rows.cpu_weight[task] == 2), int(rows.cpu_weight[task] == 1)
            if not rows.to_gpu[task]:
                key = (mu + long, mu_ + middle, kappa, kappa_, area)
                following[key] = min(following.get(key, math.inf), work + float(instance.cpu[task]))
            long, middle = int(rows.gpu_weight[task] == 2), int(rows.gpu_weight[task] == 1)
            if not rows.to_cpu[task]:
                key = (mu, mu_, kappa + long, kappa_ + middle, area + int(rows.units[task]))
                following[key] = min(following.get(key, math.inf), work)
        m, k = instance.cpus, instance.gpus
        states = {
            (mu, mu_, kappa, kappa_, area): work
            for (mu, mu_, kappa, kappa_, area), work in following.items()
            if mu + (mu_ + 1) // 2 <= m and kappa + (kappa_ + 1) // 2 <= k and area <= 3 * k * instance.n
        }
    return min(states.values(), default=math.inf) <= instance.cpus * guess


@given(tasks, machines, st.floats(0.5, 1.3))
@settings(max_examples=100, deadline=None)
def test_the_sparse_program_accepts_only_where_the_dense_table_does(
    times: list[tuple[float, float]], sides: tuple[int, int], factor: float
) -> None:
    """It rejects where the table does or below the optimum: its bound uses the exact GPU area, the table rounds it."""
    instance = MakespanInstance.of([cpu for cpu, _ in times], [gpu for _, gpu in times], *sides)
    best = optimal_makespan(instance)
    guess = best * factor
    if shelves.dual_step(instance, guess) is not None:
        assert dense_table_accepts(instance, guess * (1 + 1e-6))
    else:
        assert not dense_table_accepts(instance, guess * (1 - 1e-6)) or guess < best * CLOSE


@pytest.mark.parametrize("few", [1, 5])
def test_the_beam_width_of_the_first_pass_changes_no_decision(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    cpu = rng.uniform(10, 100, 24)
    instance = MakespanInstance.of(cpu, cpu, 5, 3)  # no task prefers a side, so the program has the most states
    guesses = np.linspace(0.9, 1.1, 9) * area_bound(instance)[0]
    wide = [shelves.dual_step(instance, float(guess)) is None for guess in guesses]
    monkeypatch.setattr(shelves, "BEAM_WIDTH", few)
    assert [shelves.dual_step(instance, float(guess)) is None for guess in guesses] == wide
    assert True in wide
    assert False in wide


@pytest.mark.parametrize(
    "make", [generator.random_instance, generator.random_unrelated_instance], ids=lambda make: make.__name__
)
@pytest.mark.parametrize(("n", "cpus", "gpus"), [(12, 3, 1), (9, 4, 2), (12, 3, 2), (9, 3, 3), (14, 4, 1)])
def test_milp_confirms_every_rejection_of_the_bisection(
    make: Make, n: int, cpus: int, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []

    def noted(instance: MakespanInstance, guess: float) -> Bools | None:
        on_gpu = shelves.dual_step(instance, guess)
        if on_gpu is None:
            refused.append(guess)
        return on_gpu

    monkeypatch.setattr(dual, "dual_step", noted)
    for seed in range(3):
        instance = make(n, cpus, gpus, np.random.default_rng(seed))
        before = len(refused)
        plan = dual.dual_approximation(instance)
        best = float(instance.loads(milp.solve(instance, plan).machine_of).max())
        assert all(guess < best for guess in refused[before:])
        assert plan.bound <= best * CLOSE
        end = float(instance.loads(plan.machine_of).max())
        assert end <= dual.approximation_ratio(instance) * (1 + dual.GAP) * plan.bound * CLOSE
    assert make is not generator.random_unrelated_instance or len(refused) >= 3, "the test needs rejections to confirm"


def test_a_thousand_tasks_on_72_machines_stay_within_the_proven_ratio() -> None:
    instance = generator.random_instance(1000, 64, 8, np.random.default_rng(0))
    plan = dual.dual_approximation(instance)
    assert (
        float(instance.loads(plan.machine_of).max()) <= dual.approximation_ratio(instance) * (1 + dual.GAP) * plan.bound
    )


@pytest.mark.parametrize(("gpus", "ratio"), [(0, 4 / 3), (1, 4 / 3), (2, 1.5), (8, 4 / 3 + 1 / 24)])
def test_approximation_ratio(gpus: int, ratio: float) -> None:
    assert dual.approximation_ratio(MakespanInstance.of([1.0], [1.0], 1, gpus)) == pytest.approx(ratio)
