"""Run episodes and record what the trainers need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Floats, Ints
from podium_optimisers.engine.workload import Workload
from podium_optimisers.learning.environment import Observation, SchedulingEnv

ActionSelector = Callable[[Floats], int]
"""A function from the feasible rows, shape (m, FEATURES), to the number of the chosen row."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode of d decisions: the feasible rows, the chosen row, the reward (minus cost) and the time."""

    rows: list[Floats]
    chosen: Ints
    rewards: Floats
    times: Floats
    mean_completion: float

    @property
    def rewards_to_go(self) -> Floats:
        """Return the sum of rewards from each decision to the end, shape (d,)."""
        return np.cumsum(self.rewards[::-1])[::-1]


def feasible_actions(observation: Observation) -> tuple[Floats, Ints]:
    """Return the rows of the feasible actions, and these actions."""
    actions = np.flatnonzero(observation["mask"])
    return observation["rows"][actions], actions


def run_episode(env: SchedulingEnv, workload: Workload, choose: ActionSelector) -> Trajectory:
    """Run one episode of this workload. Decisions with a single feasible action are not recorded."""
    observation, _ = env.reset(options={"workload": workload})
    recorded_rows: list[Floats] = []
    chosen: list[int] = []
    rewards: list[float] = []
    times: list[float] = []
    over = False
    info: dict[str, float] = {}
    while not over:
        rows, actions = feasible_actions(observation)
        selected = choose(rows) if len(rows) > 1 else 0
        if len(rows) > 1:
            recorded_rows.append(rows)
            chosen.append(selected)
            rewards.append(0.0)
            assert env.simulation is not None
            times.append(env.simulation.now)
        observation, reward, over, _, info = env.step(int(actions[selected]))
        if rewards:
            rewards[-1] += reward
    return Trajectory(
        recorded_rows, np.array(chosen, dtype=np.int64), np.array(rewards), np.array(times), info["mean_completion"]
    )
