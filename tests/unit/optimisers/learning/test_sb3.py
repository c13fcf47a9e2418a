"""Stable-Baselines3 in our environment: its PPO where the extra `optimisers-sb3` is installed, else what is said."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from podium_optimisers.engine.cluster import Cluster
from podium_optimisers.engine.simulation import simulate
from podium_optimisers.learning import sb3
from podium_optimisers.learning.environment import WAIT, Episodes, SchedulingEnv
from podium_optimisers.preemptive.policies import Fifo

EPISODES = Episodes(jobs=10, cluster=Cluster(1, 2))


@pytest.mark.filterwarnings("default")  # theirs are not ours to mend
def test_ppo_learns_from_our_steps_and_plays_an_episode() -> None:
    pytest.importorskip("stable_baselines3", reason="pip install 'kube-podium[optimisers-sb3]'")
    env = SchedulingEnv(EPISODES)
    model: Any = sb3.learn("ppo", env, 128, seed=0, settings={"n_steps": 64, "batch_size": 32, "n_epochs": 1})
    assert model.num_timesteps == 128
    workload = EPISODES.draw(np.random.default_rng(1))
    assert sb3.mean_completion(model, env, workload) >= float(np.mean(workload.duration))


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)  # as if it were not there, where it is
    with pytest.raises(sb3.ExtraMissingError, match=r"^ExtraMissing: .*pip install 'kube-podium\[optimisers-sb3\]'$"):
        sb3.learn("ppo", SchedulingEnv(EPISODES), 1, seed=0)


@pytest.mark.parametrize(
    ("trainer", "steps", "said"),
    [("sac", 1, "UnknownTrainer: trainer is 'sac'"), ("ppo", 0, "InvalidSetting: steps is 0")],
)
def test_wrong_settings_are_refused_before_anything_is_imported(trainer: str, steps: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sb3.learn(trainer, SchedulingEnv(EPISODES), steps, seed=0)


def test_a_models_choices_are_played_on_the_engine() -> None:
    """Whoever always names the first slot, as an array of no dimension like theirs, is FIFO with back-filling."""

    class First:
        def predict(self, observation: Any, *, deterministic: bool) -> tuple[Any, None]:
            assert deterministic
            able = np.flatnonzero(observation["mask"][:WAIT])
            return np.array(able[0] if len(able) else WAIT), None

    workload = EPISODES.draw(np.random.default_rng(2))
    expected = simulate(workload, EPISODES.cluster, Fifo(backfill=True)).mean_completion
    assert sb3.mean_completion(First(), SchedulingEnv(EPISODES), workload) == pytest.approx(expected)
