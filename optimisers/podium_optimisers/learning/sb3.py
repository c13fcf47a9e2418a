"""Stable-Baselines3's trainers on this environment (extra `optimisers-sb3`, which brings PyTorch).

`model.save` of Stable-Baselines3 writes pickles: load only files that you wrote. No other part of Podium needs this
module.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from podium_optimisers.engine.workload import Workload
from podium_optimisers.learning.environment import SchedulingEnv

TRAINERS = {"ppo": "PPO", "dqn": "DQN", "a2c": "A2C"}  # trainers that support dict observations and discrete actions


class ExtraMissingError(ImportError):
    """Stable-Baselines3 is not installed. The message names the extra to install."""


class Sb3Model(Protocol):
    """The part of a Stable-Baselines3 model that this module uses."""

    def predict(self, observation: Any, *, deterministic: bool) -> tuple[Any, Any]:
        """Return the action for an observation."""


def learn(
    trainer: str, env: SchedulingEnv, steps: int, seed: int, settings: Mapping[str, Any] | None = None
) -> Sb3Model:
    """Return a model after `steps` decisions in `env`, trained on the CPU.

    `settings`: further arguments of the trainer (`n_steps`, ...). Raises ValueError (UnknownTrainer, InvalidSetting) or
    ExtraMissingError.
    """
    if trainer not in TRAINERS:
        raise ValueError(f"UnknownTrainer: trainer {trainer!r} is not supported; give one of {', '.join(TRAINERS)}.")
    if steps < 1:
        raise ValueError(f"InvalidSetting: steps must be at least 1 (got {steps}).")
    untrained = getattr(_import_sb3(), TRAINERS[trainer])(
        "MultiInputPolicy", env, seed=seed, device="cpu", **(settings or {})
    )
    model: Sb3Model = untrained.learn(steps)
    return model


def mean_completion(model: Sb3Model, env: SchedulingEnv, workload: Workload) -> float:
    """Return the mean completion time (s) of one workload under the model's most likely actions."""
    observation, _ = env.reset(options={"workload": workload})
    over, info = False, {"mean_completion": np.nan}
    while not over:
        action, _ = model.predict(observation, deterministic=True)
        observation, _, over, _, info = env.step(action)
    return float(info["mean_completion"])


def _import_sb3() -> ModuleType:
    """Import Stable-Baselines3. Raise ExtraMissingError if it is not installed."""
    try:
        return importlib.import_module("stable_baselines3")
    except ModuleNotFoundError as error:
        text = f"ExtraMissing: module {error.name} is not installed; pip install 'kube-podium[optimisers-sb3]'"
        raise ExtraMissingError(text) from error
