"""Plays episodes with a network and keeps what the trainers learn from. Called by the trainers and the evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from podium_optimisers.engine.workload import Floats, Ints, Workload
from podium_optimisers.learning.environment import Observation, SchedulingEnv

Chooser = Callable[[Floats], int]
"""Rows of what can be done, shape (m, FEATURES), to the number of one of them."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode of d decisions: the rows that could be chosen, which was, what came of it (minus cost), and when."""

    rows: list[Floats]
    chosen: Ints
    rewards: Floats
    times: Floats
    mean_completion: float

    @property
    def to_go(self) -> Floats:
        """The sum of rewards from each decision to the end, shape (d,)."""
        return np.cumsum(self.rewards[::-1])[::-1]


def choices(observation: Observation) -> tuple[Floats, Ints]:
    """The rows that can be done, and their actions."""
    actions = np.flatnonzero(observation["mask"])
    return observation["rows"][actions], actions


def play(env: SchedulingEnv, workload: Workload, choose: Chooser) -> Trajectory:
    """One episode of this workload. Decisions with a single choice are made but not kept: nothing is learned there."""
    observation, _ = env.reset(options={"workload": workload})
    rows_kept: list[Floats] = []
    chosen: list[int] = []
    rewards: list[float] = []
    times: list[float] = []
    over = False
    info: dict[str, float] = {}
    while not over:
        rows, actions = choices(observation)
        picked = choose(rows) if len(rows) > 1 else 0
        if len(rows) > 1:
            rows_kept.append(rows)
            chosen.append(picked)
            rewards.append(0.0)
            assert env.simulation is not None
            times.append(env.simulation.now)
        observation, reward, over, _, info = env.step(int(actions[picked]))
        if rewards:
            rewards[-1] += reward
    return Trajectory(
        rows_kept, np.array(chosen, dtype=np.int64), np.array(rewards), np.array(times), info["mean_completion"]
    )
