"""REINFORCE (Williams, Machine Learning 8, 1992): raise the chance of choices after which it went better than usual,
one step for each set of plays. Called by `train`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from podium_optimisers.learning.backlog import FEATURES
from podium_optimisers.learning.environment import Episodes, SchedulingEnv
from podium_optimisers.learning.gradient import play_together, policy_errors
from podium_optimisers.learning.network import Adam, Network
from podium_optimisers.learning.ragged import stack


@dataclass(frozen=True, slots=True)
class Reinforce:
    """`updates` of the network, each from `plays` episodes of each of `workloads` workloads."""

    updates: int = 300
    workloads: int = 4
    plays: int = 6
    rate: float = 3e-3
    entropy: float = 1e-3
    hidden: tuple[int, ...] = (32, 32)
    episodes: Episodes = field(default_factory=Episodes)
    name: str = "reinforce"

    def train(self, seed: int, report: Callable[[int, float], None] | None = None) -> Network:
        """Deterministic for a seed. `report(update, mean completion of its plays in seconds)`."""
        generator = np.random.default_rng(seed)
        network = Network.fresh(FEATURES, self.hidden, generator)
        adam = Adam(network, self.rate)
        env = SchedulingEnv(self.episodes)
        for update in range(self.updates):
            played, advantages = play_together(env, network, self.workloads, self.plays, generator)
            rows = [row for trajectory in played for row in trajectory.rows]
            groups, stacked, chosen = stack(rows, np.concatenate([trajectory.chosen for trajectory in played]))
            log_chances = groups.log_softmax(network.scores(stacked))
            adam.step(network.gradients(policy_errors(log_chances, groups, chosen, advantages, self.entropy)))
            if report is not None:
                report(update, float(np.mean([trajectory.mean_completion for trajectory in played])))
        return network
