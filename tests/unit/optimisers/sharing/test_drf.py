"""DRF: the paper's example, its four properties, whole tasks, invalid input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.sharing.drf import DrfProblem, drf_shares, drf_tasks
from podium_optimisers.validation import InputError

PAPER = DrfProblem.of(["a", "b"], ["cpu", "gb"], [[1.0, 4.0], [3.0, 1.0]], [9.0, 18.0])


@st.composite
def problems(draw: st.DrawFn) -> DrfProblem:
    resources = draw(st.integers(1, 3))
    capacity = [draw(st.sampled_from([1.0, 8.0, 100.0])) for _ in range(resources)]
    demand, limit = [], []
    for _ in range(draw(st.integers(1, 6))):
        row = [draw(st.sampled_from([0.0, 0.1, 1.0, 2.5])) for _ in range(resources)]
        row[draw(st.integers(0, resources - 1))] = 1.0
        demand.append(row)
        limit.append(draw(st.sampled_from([math.inf, math.inf, 1.0, 0.25, 0.0])))
    weight = [draw(st.sampled_from([1.0, 1.0, 2.0])) for _ in demand]
    return DrfProblem.of([f"j{i}" for i in range(len(demand))], "xyz"[:resources], demand, capacity, weight, limit)


def test_the_example_of_the_paper() -> None:
    assert drf_shares(PAPER).tasks == pytest.approx([3.0, 2.0])
    assert drf_shares(PAPER).dominant_share == pytest.approx([2 / 3, 2 / 3])
    assert drf_tasks(PAPER).tasks.tolist() == [3.0, 2.0]


@given(problems())
@settings(deadline=None, max_examples=50)
def test_shares_are_feasible_and_max_min_fair(problem: DrfProblem) -> None:
    shares = drf_shares(problem)
    assert shares.residual < 1e-9
    used = shares.tasks @ problem.demand
    full = used >= problem.capacity * (1.0 - 1e-9)
    for job, reached in enumerate(shares.dominant_share):
        if shares.tasks[job] >= problem.limit[job] * (1.0 - 1e-9):
            continue
        # a full resource limits the job, and no other user of that resource has a larger share
        price_share = [r for r in np.flatnonzero(full) if problem.demand[job, r] > 0.0]
        assert price_share
        assert any(
            (shares.dominant_share[problem.demand[:, r] > 0.0] <= reached * (1.0 + 1e-9)).all() for r in price_share
        )


@given(problems())
@settings(deadline=None, max_examples=50)
def test_every_job_gets_at_least_an_equal_part(problem: DrfProblem) -> None:
    """Sharing incentive: a job gets at least what 1/n of the cluster (by weight) would give, or its limit."""
    part = problem.weight / problem.weight.sum()
    shares = drf_shares(problem)
    equal = np.minimum(part / problem.dominant, problem.limit)
    assert (shares.tasks >= equal * (1.0 - 1e-9)).all()


@given(problems(), st.integers(0, 5), st.floats(0.0, 5.0))
@settings(deadline=None, max_examples=50)
def test_no_job_gains_by_overstating_its_demand(problem: DrfProblem, place: int, more: float) -> None:
    """Strategy-proofness: an overstated demand does not increase the useful tasks."""
    liar = place % len(problem.jobs)
    demand = problem.demand.copy()
    demand[liar] += more
    if problem.limit[liar] == 0.0:
        return
    false_problem = DrfProblem.of(
        problem.jobs,
        problem.resources,
        demand,
        problem.capacity.tolist(),
        problem.weight.tolist(),
        problem.limit.tolist(),
    )
    got = drf_shares(false_problem).tasks[liar] * demand[liar]
    true = problem.demand[liar]
    useful = min(float((got[true > 0.0] / true[true > 0.0]).min()), float(problem.limit[liar]))
    assert useful <= drf_shares(problem).tasks[liar] * (1.0 + 1e-9) + 1e-12


@given(problems(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_the_order_of_the_jobs_does_not_matter(problem: DrfProblem, random: object) -> None:
    order = list(range(len(problem.jobs)))
    random.shuffle(order)  # type: ignore[attr-defined]
    again = DrfProblem.of(
        [problem.jobs[i] for i in order],
        problem.resources,
        problem.demand[order],
        problem.capacity.tolist(),
        problem.weight[order].tolist(),
        problem.limit[order].tolist(),
    )
    assert drf_shares(again).tasks == pytest.approx(drf_shares(problem).tasks[order])


@given(problems())
@settings(deadline=None, max_examples=50)
def test_whole_tasks_are_feasible_and_no_further_task_fits(problem: DrfProblem) -> None:
    allocation = drf_tasks(problem)
    assert allocation.residual < 1e-9
    assert (allocation.tasks == np.floor(allocation.tasks)).all()
    left = problem.capacity - allocation.tasks @ problem.demand
    for job, demand in enumerate(problem.demand):
        assert allocation.tasks[job] + 1 > problem.limit[job] or (demand > left + 1e-9).any()


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"demand": [[1.0, -4.0], [3.0, 1.0]]}, "TooSmall", "a.demand"),
        ({"demand": [[1.0, 4.0], [math.nan, 1.0]]}, "NotANumber", "b.demand"),
        ({"demand": [[1.0, 4.0], [0.0, 0.0]]}, "ZeroDemand", "b.demand"),
        ({"demand": [[1.0, 4.0]]}, "ShapeMismatch", "demand"),
        ({"capacity": [9.0, 0.0]}, "NoFittingMachine", "a.demand: 4 of gb"),
        ({"capacity": [9.0, -1.0]}, "TooSmall", "gb.capacity"),
        ({"weight": [1.0, 0.0]}, "TooSmall", "b.weight"),
        ({"limit": [1.0, -1.0]}, "TooSmall", "b.limit"),
        ({"limit": [1.0]}, "ShapeMismatch", "limit"),
        ({"jobs": []}, "NoJobs", "jobs"),
        ({"resources": []}, "NoResources", "resources"),
    ],
)
def test_invalid_input_is_refused_with_job_and_field(changes: dict[str, object], code: str, message: str) -> None:
    good = {"jobs": ["a", "b"], "resources": ["cpu", "gb"], "demand": PAPER.demand, "capacity": [9.0, 18.0]}
    with pytest.raises(InputError) as caught:
        DrfProblem.of(**{**good, **changes})  # type: ignore[arg-type]
    assert caught.value.code == code
    assert str(caught.value).startswith(message)
