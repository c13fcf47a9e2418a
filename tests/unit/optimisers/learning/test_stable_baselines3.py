"""Stable-Baselines3 on this environment: training if the extra is installed, else the error message."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from podium_optimisers.engine.cluster import GpuCluster
from podium_optimisers.engine.simulation import simulate
from podium_optimisers.learning import sb3
from podium_optimisers.learning.environment import WAIT_ACTION, EpisodeDistribution, SchedulingEnv
from podium_optimisers.preemptive.policies import FifoPolicy

EPISODES = EpisodeDistribution(jobs=10, cluster=GpuCluster(1, 2))


@pytest.mark.filterwarnings("default")  # warnings of third-party code
def test_ppo_trains_and_runs_an_episode() -> None:
    pytest.importorskip("stable_baselines3", reason="pip install 'kube-podium[optimisers-sb3]'")
    env = SchedulingEnv(EPISODES)
    model: Any = sb3.learn("ppo", env, 128, seed=0, settings={"n_steps": 64, "batch_size": 32, "n_epochs": 1})
    assert model.num_timesteps == 128
    workload = EPISODES.sample(np.random.default_rng(1))
    assert sb3.mean_completion(model, env, workload) >= float(np.mean(workload.duration))


def test_the_error_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)  # simulates a missing package
    with pytest.raises(sb3.ExtraMissingError, match=r"^ExtraMissing: .*pip install 'kube-podium\[optimisers-sb3\]'$"):
        sb3.learn("ppo", SchedulingEnv(EPISODES), 1, seed=0)


@pytest.mark.parametrize(
    ("trainer", "steps", "message"),
    [("sac", 1, "UnknownTrainer: trainer 'sac'"), ("ppo", 0, r"InvalidSetting: steps must be at least 1 \(got 0\)")],
)
def test_invalid_settings_are_refused_before_the_import(trainer: str, steps: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sb3.learn(trainer, SchedulingEnv(EPISODES), steps, seed=0)


def test_the_actions_of_a_model_run_on_the_simulator() -> None:
    """A model that always chooses the first job, as a 0-d array, is FIFO with backfilling."""

    class First:
        def predict(self, observation: Any, *, deterministic: bool) -> tuple[Any, None]:
            assert deterministic
            able = np.flatnonzero(observation["mask"][:WAIT_ACTION])
            return np.array(able[0] if len(able) else WAIT_ACTION), None

    workload = EPISODES.sample(np.random.default_rng(2))
    expected = simulate(workload, EPISODES.cluster, FifoPolicy(backfill=True)).mean_completion
    assert sb3.mean_completion(First(), SchedulingEnv(EPISODES), workload) == pytest.approx(expected)
