"""Rounds and replays: feasible in every round and close to the shares."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.sharing.gavel_jobs import gavel_like
from podium_optimisers.sharing.makespan import makespan_shares
from podium_optimisers.sharing.max_min import max_min_shares
from podium_optimisers.sharing.problem import SharingProblem
from podium_optimisers.sharing.replay import replay_fifo, replay_rounds
from podium_optimisers.sharing.rounds import UNASSIGNED, Priority, round_shares
from podium_optimisers.sharing.shares import TimeShares
from podium_optimisers.validation import InputError

PRIORITIES: list[Priority] = ["deficit", "ratio"]


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from(PRIORITIES))
@settings(deadline=None, max_examples=50)
def test_every_round_is_feasible(seed: int, jobs: int, priority: Priority) -> None:
    problem = gavel_like(np.random.default_rng(seed), jobs, (8, 4, 2)).problem
    plan = round_shares(max_min_shares(problem), 30, priority)
    for assignment in plan.assignment:
        runs = np.flatnonzero(assignment != UNASSIGNED)
        assert problem.allowed[runs, assignment[runs]].all()
        used = np.bincount(assignment[runs], weights=problem.width[runs], minlength=3)
        assert (used <= problem.gpus).all()
    assert (plan.received.sum(axis=1) <= 1.0).all()
    assert (plan.received[plan.shares.share == 0.0] == 0.0).all()


def greedy_deficit_bound(jobs: int) -> float:
    """Return a generous bound on the deficit of any pair in rounds: one for each job that may go first."""
    return 2.0 * jobs


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
@settings(deadline=None, max_examples=40)
def test_rounds_converge_to_the_shares(seed: int, jobs: int) -> None:
    """For jobs of one GPU the deficit is bounded in rounds, so its part of the time goes to 0."""
    problem = gavel_like(np.random.default_rng(seed), jobs, (3, 2, 2)).problem
    narrow = SharingProblem.of(problem.jobs, problem.types, problem.rate, problem.gpus.tolist())
    plan = round_shares(max_min_shares(narrow), 400)
    assert plan.max_deficit * 400 <= greedy_deficit_bound(jobs)


def test_rounds_by_hand() -> None:
    problem = SharingProblem.of("ab", ["x"], [[1.0], [1.0]], [1])
    shares = TimeShares(problem, np.array([[0.75], [0.25]]), "", 0.0, 0.0)
    assert round_shares(shares, 8).received.ravel().tolist() == [0.75, 0.25]
    assert round_shares(shares, 8).max_deficit == round_shares(shares, 8).idle == 0.0
    assert round_shares(shares, 2).assignment.ravel().tolist().count(0) == 2  # the one GPU is never idle


def test_a_job_with_a_share_of_1_runs_in_every_round() -> None:
    jobs = gavel_like(np.random.default_rng(0), 60)
    shares = makespan_shares(jobs.problem, jobs.steps)
    whole = np.flatnonzero(shares.share.max(axis=1) > 1.0 - 1e-9)
    assert whole.size
    assert round_shares(shares, 50).received[whole].max(axis=1) == pytest.approx(1.0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 10))
@settings(deadline=None, max_examples=30)
def test_replays_end_after_the_lp_optimum(seed: int, jobs: int) -> None:
    made = gavel_like(np.random.default_rng(seed), jobs, (8, 8, 8))
    least = 1.0 / makespan_shares(made.problem, made.steps).bound
    for replayed in (
        replay_fifo(made.problem, made.steps),
        replay_fifo(made.problem, made.steps, np.random.default_rng(seed)),
        replay_rounds(made.problem, made.steps, 3600.0),
    ):
        assert replayed.makespan >= least * (1.0 - 1e-9)
        assert (replayed.ends >= made.steps / made.problem.rate.max(axis=1) * (1.0 - 1e-9)).all()


def test_fifo_by_hand() -> None:
    # b is wide and waits for a; c could run meanwhile, but no job passes another
    problem = SharingProblem.of("abc", ["x"], [[1.0]] * 3, [2], [1, 2, 1])
    assert replay_fifo(problem, np.array([5.0, 1.0, 1.0])).ends.tolist() == [5.0, 6.0, 7.0]
    # without a generator the fast type comes first
    two = SharingProblem.of("ab", ["slow", "fast"], [[1.0, 4.0]] * 2, [1, 1])
    assert replay_fifo(two, np.array([4.0, 4.0])).ends.tolist() == [1.0, 4.0]


@pytest.mark.parametrize("seed", range(3))
def test_rounds_lose_little_and_fifo_loses_much(seed: int) -> None:
    jobs = gavel_like(np.random.default_rng(seed), 60, (16, 16, 16))
    fluid = 1.0 / makespan_shares(jobs.problem, jobs.steps).objective
    assert replay_rounds(jobs.problem, jobs.steps, 360.0).makespan < 1.02 * fluid
    blind = [replay_fifo(jobs.problem, jobs.steps, np.random.default_rng(choice)).makespan for choice in range(5)]
    assert np.mean(blind) > 2.0 * fluid


def test_jobs_that_do_not_pack_lose_time() -> None:
    """The LP divides GPUs without limit: two jobs of 2 GPUs share 3 there, but only one runs at a time."""
    problem = SharingProblem.of("ab", ["x"], [[1.0], [1.0]], [3], [2, 2])
    steps = np.array([30.0, 30.0])
    assert 1.0 / makespan_shares(problem, steps).objective == pytest.approx(40.0)
    assert replay_rounds(problem, steps, 1.0).makespan == pytest.approx(60.0)


def test_a_seed_gives_the_same_replay() -> None:
    jobs = gavel_like(np.random.default_rng(1), 30)
    first, second = (replay_fifo(jobs.problem, jobs.steps, np.random.default_rng(2)).ends for _ in range(2))
    assert (first == second).all()


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        (lambda p: round_shares(max_min_shares(p), 0), "TooSmall", "rounds"),
        (lambda p: replay_fifo(p, np.array([1.0])), "ShapeMismatch", "steps"),
        (lambda p: replay_fifo(p, np.array([1.0, -1.0])), "TooSmall", "b.steps"),
        (lambda p: replay_rounds(p, np.array([1.0, math.nan]), 1.0), "NotANumber", "b.steps"),
        (lambda p: replay_rounds(p, np.array([1.0, 1.0]), 0.0), "TooSmall", "seconds"),
    ],
)
def test_invalid_input_is_refused_with_job_and_field(call: object, code: str, message: str) -> None:
    problem = SharingProblem.of("ab", ["x"], [[1.0], [1.0]], [1])
    with pytest.raises(InputError) as caught:
        call(problem)  # type: ignore[operator]
    assert caught.value.code == code
    assert str(caught.value).startswith(message)
