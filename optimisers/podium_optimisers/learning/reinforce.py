"""REINFORCE (Williams, Machine Learning 8, 1992) with one gradient step for each set of episodes.

The step raises the probability of choices whose return exceeded the baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from podium_optimisers.learning.environment import EpisodeDistribution
from podium_optimisers.learning.network import Adam, ScoreNetwork
from podium_optimisers.learning.policy_gradient import DecisionBatch, policy_gradient_errors, train
from podium_optimisers.learning.row_groups import stack_groups


@dataclass(frozen=True, slots=True)
class Reinforce:
    """Settings of REINFORCE.

    `updates` of the network, each from `rollouts` episodes of each of `workloads` workloads.
    """

    updates: int = 300
    workloads: int = 4
    rollouts: int = 6
    learning_rate: float = 3e-3
    entropy: float = 1e-3
    hidden: tuple[int, ...] = (32, 32)
    distribution: EpisodeDistribution = field(default_factory=EpisodeDistribution)
    name: str = "reinforce"

    def train(self, seed: int, report: Callable[[int, float], None] | None = None) -> ScoreNetwork:
        """Train a network for this seed; `report` as in `policy_gradient.train`."""
        return train(self, seed, report)

    def update(
        self, network: ScoreNetwork, adam: Adam, decisions: DecisionBatch, generator: np.random.Generator
    ) -> None:
        """Make one gradient step on all decisions of the round."""
        groups, stacked, chosen = stack_groups(decisions.rows, decisions.chosen)
        log_probabilities = groups.log_softmax(network.scores(stacked))
        adam.step(
            network.gradients(
                policy_gradient_errors(log_probabilities, groups, chosen, decisions.advantages, self.entropy)
            )
        )
