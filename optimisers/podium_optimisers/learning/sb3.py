"""Stable-Baselines3's trainers in our environment, for who wants them beside ours (extra `optimisers-sb3`, which brings
PyTorch). Called by its users; nothing of Podium needs it.

Its models are saved by `model.save` in a format of its own, which holds pickles: load only files that you made.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from podium_optimisers.engine.workload import Workload
from podium_optimisers.learning.environment import SchedulingEnv

TRAINERS = {"ppo": "PPO", "dqn": "DQN", "a2c": "A2C"}  # those that take a dict of observations and a discrete action


class ExtraMissingError(ImportError):
    """Stable-Baselines3 is not installed; the message says how to get it."""


class Model(Protocol):
    """What we use of a Stable-Baselines3 model."""

    def predict(self, observation: Any, *, deterministic: bool) -> tuple[Any, Any]: ...


def learn(trainer: str, env: SchedulingEnv, steps: int, seed: int, settings: Mapping[str, Any] | None = None) -> Model:
    """A model after `steps` decisions in `env`, on the CPU. `settings`: what else the trainer takes (`n_steps`, ...).

    Errors: ValueError (UnknownTrainer, InvalidSetting), ExtraMissingError.
    """
    if trainer not in TRAINERS:
        raise ValueError(f"UnknownTrainer: trainer is {trainer!r}; give one of {', '.join(TRAINERS)}.")
    if steps < 1:
        raise ValueError(f"InvalidSetting: steps is {steps}; give 1 or more.")
    made = getattr(_installed(), TRAINERS[trainer])(
        "MultiInputPolicy", env, seed=seed, device="cpu", **(settings or {})
    )
    model: Model = made.learn(steps)
    return model


def mean_completion(model: Model, env: SchedulingEnv, workload: Workload) -> float:
    """Mean completion time (s) of one workload under the model's most likely choices."""
    observation, _ = env.reset(options={"workload": workload})
    over, info = False, {"mean_completion": np.nan}
    while not over:
        action, _ = model.predict(observation, deterministic=True)
        observation, _, over, _, info = env.step(action)
    return float(info["mean_completion"])


def _installed() -> ModuleType:
    try:
        return importlib.import_module("stable_baselines3")
    except ModuleNotFoundError as error:
        text = f"ExtraMissing: module {error.name} is not installed; pip install 'kube-podium[optimisers-sb3]'"
        raise ExtraMissingError(text) from error
