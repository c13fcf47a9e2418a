"""Stable-Baselines3's PPO in our environment. Runs where the extra `optimisers-sb3` is installed."""

from __future__ import annotations

import pytest

from podium_optimisers.learning.environment import Episodes, SchedulingEnv


@pytest.mark.filterwarnings("default")  # theirs are not ours to mend
def test_ppo_learns_from_our_steps_and_plays_an_episode() -> None:
    sb3 = pytest.importorskip("stable_baselines3", reason="pip install 'kube-podium[optimisers-sb3]'")
    env = SchedulingEnv(Episodes(jobs=10))
    model = sb3.PPO("MultiInputPolicy", env, n_steps=64, batch_size=32, n_epochs=1, seed=0, device="cpu")
    before = [part.detach().clone() for part in model.policy.parameters()]
    model.learn(128)
    assert model.num_timesteps == 128
    assert any(bool((old != new).any()) for old, new in zip(before, model.policy.parameters(), strict=True))
    observation, _ = env.reset(seed=1)
    over, info = False, {}
    while not over:
        action, _ = model.predict(observation)
        observation, _, over, _, info = env.step(action)
    assert info["mean_completion"] > 0.0
