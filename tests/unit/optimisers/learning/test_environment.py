"""The environment uses the simulator: gymnasium's checker, returns and equal results of policies."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation_checks import assert_deterministic, assert_feasible, cases

from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.simulation import simulate
from podium_optimisers.engine.workload import BatchJob, Workload, WorkloadError
from podium_optimisers.learning.backlog import FEATURES, MAX_VISIBLE_JOBS
from podium_optimisers.learning.environment import WAIT_ACTION, EpisodeDistribution, SchedulingEnv
from podium_optimisers.learning.network import ScoreNetwork
from podium_optimisers.learning.policy import LearnedPolicy
from podium_optimisers.learning.rollouts import feasible_actions, run_episode
from podium_optimisers.preemptive.policies import FifoPolicy, SjfPolicy


def test_the_environment_passes_gymnasiums_checker() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(SchedulingEnv(EpisodeDistribution(jobs=20)), skip_render_check=True)


@settings(deadline=None, max_examples=25)
@given(cases(), st.integers(0, 2**32 - 1))
def test_the_return_is_minus_the_mean_completion_and_every_action_is_accepted(
    case: tuple[Workload, GpuCluster, PreemptionCosts], seed: int
) -> None:
    workload, cluster, _ = case
    env = SchedulingEnv(EpisodeDistribution(cluster=cluster))
    generator = np.random.default_rng(seed)
    observation, _ = env.reset(options={"workload": workload})
    total, over, info = 0.0, False, {}
    while not over:
        assert env.observation_space.contains(observation)
        observation, reward, over, cut, info = env.step(int(generator.integers(MAX_VISIBLE_JOBS + 1)))
        assert reward <= 0.0
        assert not cut
        total += reward
    assert env.simulation is not None
    result = env.simulation.result()
    assert info["mean_completion"] == result.mean_completion
    assert -total * float(np.mean(workload.duration)) == pytest.approx(result.mean_completion, rel=1e-9)


def test_always_starting_the_first_job_is_fifo_with_backfilling() -> None:
    workload = EpisodeDistribution().sample(np.random.default_rng(1))
    trajectory = run_episode(SchedulingEnv(), workload, lambda rows: 0)
    assert trajectory.mean_completion == simulate(workload, GpuCluster(2, 4), FifoPolicy(backfill=True)).mean_completion


def test_always_starting_the_shortest_job_is_sjf_while_all_jobs_are_visible() -> None:
    workload = EpisodeDistribution(jobs=MAX_VISIBLE_JOBS).sample(np.random.default_rng(1))
    trajectory = run_episode(
        SchedulingEnv(), workload, lambda rows: int(np.argmin(np.where(rows[:, 6] > 0.0, np.inf, rows[:, 0])))
    )
    assert trajectory.mean_completion == simulate(workload, GpuCluster(2, 4), SjfPolicy()).mean_completion


def test_a_seed_determines_the_episode() -> None:
    env = SchedulingEnv(EpisodeDistribution(jobs=10))
    first, again, other = (env.reset(seed=seed)[0]["rows"] for seed in (3, 3, 4))
    assert first.tobytes() == again.tobytes() != other.tobytes()


def test_waiting_is_feasible_only_while_a_job_is_running() -> None:
    env = SchedulingEnv(EpisodeDistribution(cluster=GpuCluster(1, 2)))
    jobs = [BatchJob("a", 0, 5), BatchJob("b", 0, 5), BatchJob("c", 1, 5)]
    observation, _ = env.reset(options={"workload": Workload.of(jobs)})
    assert observation["mask"].nonzero()[0].tolist() == [0, 1]
    observation, *_ = env.step(0)
    assert observation["mask"].nonzero()[0].tolist() == [0, WAIT_ACTION]
    observation, reward, *_ = env.step(WAIT_ACTION)
    assert env.simulation is not None
    assert env.simulation.now == 1.0
    assert reward == pytest.approx(-2.0 / 15.0), "two jobs for one second, divided by three jobs of 5 s"
    assert observation["mask"].nonzero()[0].tolist() == [0, 1, WAIT_ACTION]
    rows, actions = feasible_actions(observation)
    assert rows.shape == (3, FEATURES)
    assert actions.tolist() == [0, 1, WAIT_ACTION]


def test_a_step_without_an_episode_is_refused() -> None:
    env = SchedulingEnv(EpisodeDistribution(jobs=1))
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    _, _, over, _, _ = env.step(0)
    assert over
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0)


@pytest.mark.parametrize("action", [0, np.int64(0), np.array(0)], ids=["int", "scalar", "array of no dimensions"])
def test_actions_can_be_integers_or_numpy_scalars(action: int) -> None:
    env = SchedulingEnv(EpisodeDistribution(jobs=1))
    env.reset(seed=0)
    _, _, over, _, _ = env.step(action)
    assert over


@pytest.mark.parametrize("action", [-1, WAIT_ACTION + 1, 0.5])
def test_an_invalid_action_is_refused(action: int) -> None:
    env = SchedulingEnv(EpisodeDistribution(jobs=3))
    env.reset(seed=0)
    with pytest.raises(
        ValueError, match=rf"InvalidAction: action must be a whole number from 0 to {WAIT_ACTION} \(got {action}\)"
    ):
        env.step(action)


@pytest.mark.parametrize(("jobs", "load", "field"), [(0, 1.0, "jobs"), (5, float("nan"), "load"), (5, -1.0, "load")])
def test_invalid_episode_settings_are_named(jobs: int, load: float, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be"):
        EpisodeDistribution(jobs, load)


def test_a_job_wider_than_the_cluster_is_named_at_reset() -> None:
    with pytest.raises(WorkloadError, match="JobTooLarge: job wide"):
        SchedulingEnv().reset(options={"workload": Workload.of([BatchJob("wide", 0, 1, 9)])})


@settings(deadline=None, max_examples=25)
@given(cases(), st.integers(0, 100))
def test_a_network_acts_equally_as_policy_and_in_the_environment(
    case: tuple[Workload, GpuCluster, PreemptionCosts], seed: int
) -> None:
    workload, cluster, costs = case
    network = ScoreNetwork.random_init(FEATURES, (8,), np.random.default_rng(seed))
    result = assert_deterministic(workload, cluster, LearnedPolicy(network), costs)
    assert_feasible(result, cluster, costs)
    played = run_episode(
        SchedulingEnv(EpisodeDistribution(cluster=cluster)), workload, lambda rows: int(np.argmax(network.scores(rows)))
    )
    assert played.mean_completion == result.mean_completion
