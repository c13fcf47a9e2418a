"""Shares by LP and convex optimisation: feasible, optimal by certificate, fair by definition."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize

from podium_optimisers.arrays import Floats
from podium_optimisers.sharing.gavel_jobs import SPEEDS, JobSet, gavel_like, gavel_measured
from podium_optimisers.sharing.makespan import least_makespan, makespan_shares
from podium_optimisers.sharing.max_min import levels, max_min_shares
from podium_optimisers.sharing.problem import SharingProblem
from podium_optimisers.sharing.proportional import proportional_shares
from podium_optimisers.sharing.shares import TimeShares
from podium_optimisers.validation import InputError

RATES = st.one_of(st.just(0.0), st.sampled_from([0.5, 1.0, 1.0, 2.0]), st.floats(0.01, 50.0))
# Equal or clearly different. Where two rates of a job differ by a part of 1e-6, it can leave a type at a cost below
# the slack of the method (1e-7) or of the test (1e-6), and another job gains without limit by that. The levels are
# then not determined to any bound: of random problems with such rates, 4 % exceed the one below.
SEPARATE_RATES = st.sampled_from([0.0, 0.25, 0.5, 0.5, 1.0, 1.0, 2.0, 3.0, 8.0, 50.0])


@st.composite
def problems(draw: st.DrawFn, most: int = 7, rates: st.SearchStrategy[float] = RATES) -> SharingProblem:
    """Return a few jobs on 1 to 3 types, with ties, zeros, wide jobs and types without GPUs."""
    types = draw(st.integers(1, 3))
    gpus = [draw(st.integers(1, 6)), *(draw(st.integers(0, 6)) for _ in range(types - 1))]
    rate, width, weight = [], [], []
    for _ in range(draw(st.integers(1, most))):
        # the first type has a GPU, and every job runs at least there
        rate.append([draw(st.sampled_from([0.5, 1.0, 3.0])), *(draw(rates) for _ in range(types - 1))])
        width.append(draw(st.integers(1, gpus[0])))
        weight.append(draw(st.sampled_from([1.0, 1.0, 0.5, 3.0])))
    names = [f"j{i}" for i in range(len(rate))]
    return SharingProblem.of(names, ["v100", "p100", "k80"][:types], rate, gpus, width, weight)


def shuffled(problem: SharingProblem, order: NDArray[np.int64]) -> SharingProblem:
    jobs = [problem.jobs[i] for i in order]
    return SharingProblem.of(
        jobs,
        problem.types,
        problem.rate[order],
        problem.gpus.tolist(),
        problem.width[order].tolist(),
        problem.weight[order].tolist(),
    )


def assert_feasible(shares: TimeShares) -> None:
    assert shares.residual < 1e-9
    assert (shares.throughput > 0.0).all()


@given(problems(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_makespan_shares_are_certified_and_independent_of_the_order(problem: SharingProblem, random: object) -> None:
    steps = np.array([random.uniform(0.1, 100.0) for _ in problem.jobs])  # type: ignore[attr-defined]
    shares = makespan_shares(problem, steps)
    assert_feasible(shares)
    assert abs(shares.gap) <= 1e-6 * shares.objective
    assert least_makespan(shares, steps) == pytest.approx(1.0 / shares.objective, rel=1e-9)
    # lower bounds: each job alone on its fastest type, and the total work on all GPUs at the fastest rates
    fastest = problem.usable.max(axis=1)
    assert 1.0 / shares.objective >= (steps / fastest).max() * (1.0 - 1e-9)
    assert 1.0 / shares.objective >= problem.width @ (steps / fastest) / problem.gpus.sum() * (1.0 - 1e-9)
    order = np.arange(len(problem.jobs))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert makespan_shares(shuffled(problem, order), steps[order]).objective == pytest.approx(shares.objective)


def test_makespan_by_hand() -> None:
    # one fast and one slow GPU do 3 steps per second together, and two jobs have 3 steps each
    problem = SharingProblem.of(["a", "b"], ["fast", "slow"], [[2.0, 1.0], [2.0, 1.0]], [1, 1])
    shares = makespan_shares(problem, np.array([3.0, 3.0]))
    assert 1.0 / shares.objective == pytest.approx(2.0)
    # each job is fastest on another type, so each gets a GPU of its own
    problem = SharingProblem.of(["a", "b"], ["x", "y"], [[4.0, 1.0], [1.0, 4.0]], [1, 1])
    assert makespan_shares(problem, np.array([8.0, 8.0])).share == pytest.approx(np.eye(2))


def raise_one(problem: SharingProblem, gain: Floats, job: int, floor: Floats) -> float:
    """Return the highest level of `job` if every job keeps `floor`, by a plain LP."""
    n, types = gain.shape
    rows, right = [], []
    for other in range(n):
        row = np.zeros((n, types))
        row[other] = -gain[other]
        rows.append(row.ravel())
        right.append(-floor[other])
        time = np.zeros((n, types))
        time[other] = 1.0
        rows.append(time.ravel())
        right.append(1.0)
    for type_ in range(types):
        row = np.zeros((n, types))
        row[:, type_] = problem.width
        rows.append(row.ravel())
        right.append(float(problem.gpus[type_]))
    cost = np.zeros((n, types))
    cost[job] = -gain[job]
    bounds = [(0.0, None if open_ else 0.0) for open_ in problem.allowed.ravel()]
    answer = linprog(cost.ravel(), A_ub=np.array(rows), b_ub=np.array(right), bounds=bounds, method="highs")
    assert answer.status == 0
    return float(-answer.fun)


STEEP = SharingProblem.of(  # amplifies the tolerance of the LPs a thousandfold
    "abcde",
    ["v100", "p100", "k80"],
    [[0.5, 0.5, 0.0], [0.5, 0.0, 0.0], [0.5, 0.0, 1.0], [0.5, 0.01171875, 0.0], [0.5, 0.0, 8.0]],
    [2, 2, 2],
    [2, 1, 1, 1, 2],
)

TIGHT = SharingProblem.of(  # the solver's presolve takes the last LP for infeasible
    "abcd", ["v100", "p100"], [[0.5, 0.0], [0.5, 0.0], [0.5, 0.5], [0.5, 0.125]], [1, 2], [1, 1, 1, 1]
)

LOOSE = SharingProblem.of(  # with a row tolerance of 1e-7 the bound is 1.3e-6 too high
    "abcd",
    ["v100", "p100"],
    [[0.5, 0.5], [0.5, 0.5], [0.5, 0.0], [3.0, 0.5]],
    [1, 2],
    [1, 1, 1, 1],
    [1.0, 1.0, 3.0, 1.0],
)


NEAR_TIE = SharingProblem.of(  # the second type is better for b by a part of 2.4e-7
    "abc", ["v100", "p100"], [[0.5, 0.5001027463142804], [1.0, 1.0000002378478012], [3.0, 3.9936457674550394]],
    [1, 2], [1, 1, 1], [0.5, 1.0, 0.5],
)  # fmt: skip


@given(problems(most=5, rates=SEPARATE_RATES))
@example(STEEP)
@example(TIGHT)
@example(LOOSE)
@settings(deadline=None, max_examples=60)
def test_max_min_shares_satisfy_the_definition(problem: SharingProblem) -> None:
    shares = max_min_shares(problem)
    assert_feasible(shares)
    assert abs(shares.gap) <= 1e-6 * shares.objective
    reached = levels(problem, shares.throughput)
    assert reached.min() == shares.objective, "the objective belongs to the returned shares"
    gain = problem.usable * (levels(problem, np.ones(len(problem.jobs))))[:, None]
    for job in range(len(problem.jobs)):
        # jobs with no more than this job keep their level; the others may fall to its level
        floor, most = np.minimum(reached, reached[job]), reached[job] * (1.0 + 1e-3) + 1e-6
        highest = raise_one(problem, gain, job, floor * (1.0 - 1e-6))
        if highest > most:
            # the slack of 1e-6 in the floors can raise this job's level 1000 times as much. The level is concave
            # in the slack, so this extrapolation bounds the level without slack
            highest = 2.0 * highest - raise_one(problem, gain, job, floor * (1.0 - 2e-6))
        assert highest <= most


def test_the_least_level_is_certified_where_rates_nearly_agree() -> None:
    shares = max_min_shares(NEAR_TIE)
    assert_feasible(shares)
    assert abs(shares.gap) <= 1e-6 * shares.objective


@given(problems(rates=SEPARATE_RATES), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_max_min_levels_are_independent_of_the_order(problem: SharingProblem, random: object) -> None:
    order = np.arange(len(problem.jobs))
    random.shuffle(order)  # type: ignore[attr-defined]
    first = levels(problem, max_min_shares(problem).throughput)
    again = shuffled(problem, order)
    assert levels(again, max_min_shares(again).throughput) == pytest.approx(first[order], rel=1e-5)


def test_equal_jobs_on_one_type_get_equal_shares() -> None:
    problem = SharingProblem.of("abcd", ["v100"], [[1.0], [7.0], [0.1], [2.0]], [2])
    for shares in (max_min_shares(problem), proportional_shares(problem)):
        assert shares.share == pytest.approx(np.full((4, 1), 0.5), abs=1e-4)


def test_shares_are_proportional_to_weights() -> None:
    problem = SharingProblem.of("ab", ["v100"], [[1.0], [1.0]], [1], weight=[1.0, 3.0])
    for shares in (max_min_shares(problem), proportional_shares(problem)):
        assert shares.share.ravel() == pytest.approx([0.25, 0.75], abs=1e-4)


def test_max_min_raises_the_other_levels_after_the_first_lp() -> None:
    # a and b share the scarce type; c has the other type alone and must not be limited to their level
    problem = SharingProblem.of("abc", ["scarce", "plenty"], [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [1, 9])
    assert max_min_shares(problem).throughput == pytest.approx([0.5, 0.5, 1.0])


@given(problems())
@settings(deadline=None, max_examples=50)
def test_proportional_shares_are_certified(problem: SharingProblem) -> None:
    shares = proportional_shares(problem)
    assert_feasible(shares)
    assert -1e-12 * abs(shares.objective) - 1e-9 <= shares.gap <= 2e-6 * problem.weight.sum()
    assert shares.objective == pytest.approx(problem.weight @ np.log(shares.throughput), abs=1e-9)


@given(problems(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_proportional_shares_satisfy_the_definition(problem: SharingProblem, random: object) -> None:
    """The weighted relative changes to any other sharing sum to at most 0. The order does not matter."""
    throughput = proportional_shares(problem, 1e-7).throughput
    rng = np.random.default_rng(random.randrange(2**32))  # type: ignore[attr-defined]
    others = [makespan_shares(problem, rng.uniform(0.1, 9.0, len(problem.jobs))) for _ in range(4)]
    for other in (*others, max_min_shares(problem)):
        change = problem.weight @ ((other.throughput - throughput) / throughput)
        assert change <= 2e-3 * problem.weight.sum()
    order = rng.permutation(len(problem.jobs))
    again = proportional_shares(shuffled(problem, order), 1e-7)
    assert again.throughput == pytest.approx(throughput[order], rel=5e-3)


def test_proportional_shares_agree_with_a_general_solver() -> None:
    problem = SharingProblem.of("abc", ["v", "k"], [[4.0, 1.0], [2.0, 1.5], [1.0, 1.0]], [1, 1], [1, 1, 1], [1, 2, 1])

    def minus(flat: Floats) -> float:
        return -float(problem.weight @ np.log((problem.rate * flat.reshape(3, 2)).sum(axis=1)))

    limits = [
        {"type": "ineq", "fun": lambda flat: 1.0 - flat.reshape(3, 2).sum(axis=1)},
        {"type": "ineq", "fun": lambda flat: 1.0 - flat.reshape(3, 2).sum(axis=0)},
    ]
    solution = minimize(minus, np.full(6, 0.3), bounds=[(1e-9, 1.0)] * 6, constraints=limits, options={"ftol": 1e-12})
    assert proportional_shares(problem).objective == pytest.approx(-solution.fun, abs=1e-5)


@pytest.mark.parametrize("draw", [gavel_like, gavel_measured])
@pytest.mark.parametrize("seed", range(2))
def test_certificates_at_the_size_of_the_benchmark(
    seed: int, draw: Callable[[np.random.Generator, int], JobSet]
) -> None:
    jobs = draw(np.random.default_rng(seed), 200)
    for shares in (
        makespan_shares(jobs.problem, jobs.steps),
        max_min_shares(jobs.problem),
        proportional_shares(jobs.problem),
    ):
        assert shares.residual < 1e-9
        assert shares.gap <= 2e-6 * jobs.problem.weight.sum()


def test_sharing_methods_are_deterministic() -> None:
    jobs = gavel_like(np.random.default_rng(9), 40)
    for method in (max_min_shares, proportional_shares):
        assert (method(jobs.problem).share == method(jobs.problem).share).all()
    assert (gavel_like(np.random.default_rng(9), 40).steps == jobs.steps).all()


def test_measured_jobs_come_from_the_table_and_wide_ones_are_distributed() -> None:
    known = {(1.0, one.p100, one.k80): one.distributed for one in SPEEDS}
    first, again = (gavel_measured(np.random.default_rng(9), 400).problem for _ in range(2))
    assert first.rate.tobytes() == again.rate.tobytes()
    drawn = [tuple(row) for row in first.rate.tolist()]
    assert set(drawn) == set(known)
    assert all(width == 1 or known[row] for row, width in zip(drawn, first.width.tolist(), strict=True))
    assert set(first.width.tolist()) == {1, 2, 4, 8}


GOOD: dict[str, object] = {"jobs": ["a", "b"], "types": ["x", "y"], "rate": [[1.0, 2.0], [1.0, 0.0]], "gpus": [2, 2]}


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"rate": [[1.0, -2.0], [1.0, 0.0]]}, "TooSmall", "a.rate: -2 "),
        ({"rate": [[1.0, 2.0], [math.nan, 0.0]]}, "NotANumber", "b.rate"),
        ({"rate": [[1.0, 2.0], [math.inf, 0.0]]}, "NotFinite", "b.rate"),
        ({"rate": [[1.0, 2.0]]}, "ShapeMismatch", "rate"),
        ({"rate": [[1.0, 2.0], [0.0, 0.0]]}, "NoFittingMachine", "b.width, rate"),
        ({"width": [1, 3]}, "NoFittingMachine", "b.width, rate: 3 GPUs"),
        ({"width": [0, 1]}, "TooSmall", "a.width"),
        ({"width": [1]}, "ShapeMismatch", "width"),
        ({"gpus": [0, 0]}, "NoFittingMachine", "a.width, rate"),
        ({"gpus": [-1, 1]}, "TooSmall", "x.gpus"),
        ({"gpus": [1]}, "ShapeMismatch", "gpus"),
        ({"weight": [1.0, 0.0]}, "TooSmall", "b.weight"),
        ({"weight": [math.nan, 1.0]}, "NotANumber", "a.weight"),
        ({"types": [], "gpus": []}, "NoMachines", "types"),
        ({"jobs": []}, "NoJobs", "jobs"),
    ],
)
def test_invalid_input_is_refused_with_job_and_field(changes: dict[str, object], code: str, message: str) -> None:
    SharingProblem.of(**GOOD)  # type: ignore[arg-type]
    with pytest.raises(InputError) as caught:
        SharingProblem.of(**{**GOOD, **changes})  # type: ignore[arg-type]
    assert caught.value.code == code
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("steps", "code", "message"),
    [
        ([1.0], "ShapeMismatch", "steps"),
        ([1.0, 0.0], "TooSmall", "b.steps"),
        ([math.nan, 1.0], "NotANumber", "a.steps"),
    ],
)
def test_invalid_work_is_refused_with_the_job(steps: list[float], code: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        makespan_shares(SharingProblem.of(**GOOD), np.array(steps))  # type: ignore[arg-type]
    assert caught.value.code == code
    assert str(caught.value).startswith(message)


def test_the_residual_measures_every_violation() -> None:
    problem = SharingProblem.of(**GOOD)  # type: ignore[arg-type]

    def residual(share: list[list[float]]) -> float:
        return TimeShares(problem, np.array(share), "", 0.0, 0.0).residual

    assert residual([[0.5, 0.5], [1.0, 0.0]]) == 0.0
    assert residual([[-0.1, 0.5], [1.0, 0.0]]) == pytest.approx(0.1)
    assert residual([[0.8, 0.5], [1.0, 0.0]]) == pytest.approx(0.3)
    assert residual([[0.5, 0.5], [0.5, 0.2]]) == pytest.approx(0.2)  # b cannot run on y
    crowded = SharingProblem.of(["a", "b"], ["x"], [[1.0], [1.0]], [4], [4, 2])
    assert TimeShares(crowded, np.array([[1.0], [1.0]]), "", 0.0, 0.0).residual == pytest.approx(0.5)
