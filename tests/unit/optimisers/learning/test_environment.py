"""The environment is the engine: gymnasium's checker, returns that are completion times, and the same play twice."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from engine_checks import cases, deterministic, feasible
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.engine.cluster import Cluster, Costs
from podium_optimisers.engine.simulation import simulate
from podium_optimisers.engine.workload import Job, Workload, WorkloadError
from podium_optimisers.learning.backlog import FEATURES, SLOTS
from podium_optimisers.learning.environment import WAIT, Episodes, SchedulingEnv
from podium_optimisers.learning.network import Network
from podium_optimisers.learning.policy import LearnedPolicy
from podium_optimisers.learning.rollouts import choices, play
from podium_optimisers.preemptive.policies import Fifo, Sjf


def test_gymnasiums_checker_finds_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(SchedulingEnv(Episodes(jobs=20)), skip_render_check=True)


@settings(deadline=None, max_examples=25)
@given(cases(), st.integers(0, 2**32 - 1))
def test_a_return_is_the_mean_completion_and_any_action_is_taken(
    case: tuple[Workload, Cluster, Costs], seed: int
) -> None:
    workload, cluster, _ = case
    env = SchedulingEnv(Episodes(cluster=cluster))
    generator = np.random.default_rng(seed)
    observation, _ = env.reset(options={"workload": workload})
    total, over, info = 0.0, False, {}
    while not over:
        assert env.observation_space.contains(observation)
        observation, reward, over, cut, info = env.step(int(generator.integers(SLOTS + 1)))
        assert reward <= 0.0
        assert not cut
        total += reward
    assert env.simulation is not None
    outcome = env.simulation.outcome()
    assert info["mean_completion"] == outcome.mean_completion
    assert -total * float(np.mean(workload.duration)) == pytest.approx(outcome.mean_completion, rel=1e-9)


def test_the_first_slot_always_is_fifo_with_gaps_filled() -> None:
    workload = Episodes().draw(np.random.default_rng(1))
    trajectory = play(SchedulingEnv(), workload, lambda rows: 0)
    assert trajectory.mean_completion == simulate(workload, Cluster(2, 4), Fifo(backfill=True)).mean_completion


def test_the_shortest_slot_always_is_sjf_while_all_are_seen() -> None:
    workload = Episodes(jobs=SLOTS).draw(np.random.default_rng(1))
    trajectory = play(
        SchedulingEnv(), workload, lambda rows: int(np.argmin(np.where(rows[:, 6] > 0.0, np.inf, rows[:, 0])))
    )
    assert trajectory.mean_completion == simulate(workload, Cluster(2, 4), Sjf()).mean_completion


def test_seeds_are_episodes() -> None:
    env = SchedulingEnv(Episodes(jobs=10))
    first, again, other = (env.reset(seed=seed)[0]["rows"] for seed in (3, 3, 4))
    assert first.tobytes() == again.tobytes() != other.tobytes()


def test_waiting_is_offered_only_while_something_runs() -> None:
    env = SchedulingEnv(Episodes(cluster=Cluster(1, 2)))
    jobs = [Job("a", 0, 5), Job("b", 0, 5), Job("c", 1, 5)]
    observation, _ = env.reset(options={"workload": Workload.of(jobs)})
    assert observation["mask"].nonzero()[0].tolist() == [0, 1]
    observation, *_ = env.step(0)
    assert observation["mask"].nonzero()[0].tolist() == [0, WAIT]
    observation, reward, *_ = env.step(WAIT)
    assert env.simulation is not None
    assert env.simulation.now == 1.0
    assert reward == pytest.approx(-2.0 / 15.0), "two jobs for one second, over three jobs of five"
    assert observation["mask"].nonzero()[0].tolist() == [0, 1, WAIT]
    rows, actions = choices(observation)
    assert rows.shape == (3, FEATURES)
    assert actions.tolist() == [0, 1, WAIT]


def test_a_step_without_an_episode_is_refused() -> None:
    env = SchedulingEnv(Episodes(jobs=1))
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    _, _, over, _, _ = env.step(0)
    assert over
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0)


@pytest.mark.parametrize("action", [0, np.int64(0), np.array(0)], ids=["int", "scalar", "array of no dimensions"])
def test_actions_come_as_other_peoples_trainers_give_them(action: int) -> None:
    env = SchedulingEnv(Episodes(jobs=1))
    env.reset(seed=0)
    _, _, over, _, _ = env.step(action)
    assert over


@pytest.mark.parametrize("action", [-1, WAIT + 1, 0.5])
def test_what_is_no_action_is_refused(action: int) -> None:
    env = SchedulingEnv(Episodes(jobs=3))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"InvalidAction: action is {action}; give a whole number from 0 to {WAIT}"):
        env.step(action)


@pytest.mark.parametrize(("jobs", "load", "field"), [(0, 1.0, "jobs"), (5, float("nan"), "load"), (5, -1.0, "load")])
def test_bad_episodes_are_named(jobs: int, load: float, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is"):
        Episodes(jobs, load)


def test_a_job_too_wide_is_named() -> None:
    with pytest.raises(WorkloadError, match="JobTooLarge: job wide"):
        SchedulingEnv().reset(options={"workload": Workload.of([Job("wide", 0, 1, 9)])})


@settings(deadline=None, max_examples=25)
@given(cases(), st.integers(0, 100))
def test_a_network_plays_the_same_as_policy_and_in_the_environment(
    case: tuple[Workload, Cluster, Costs], seed: int
) -> None:
    workload, cluster, charged = case
    network = Network.fresh(FEATURES, (8,), np.random.default_rng(seed))
    outcome = deterministic(workload, cluster, LearnedPolicy(network), charged)
    feasible(outcome, cluster, charged)
    played = play(SchedulingEnv(Episodes(cluster=cluster)), workload, lambda rows: int(np.argmax(network.scores(rows))))
    assert played.mean_completion == outcome.mean_completion
