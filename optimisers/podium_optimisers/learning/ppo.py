"""PPO (Schulman et al., 2017): several clipped gradient steps on the same episodes.

The advantage compares with episodes of the same arrivals instead of a critic (as in GRPO; Shao et al., 2024). A critic
sees the queue but not the arrivals to come. Its estimates differed so little that nothing was learned in a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from podium_optimisers.arrays import Floats, Ints
from podium_optimisers.learning.environment import EpisodeDistribution
from podium_optimisers.learning.network import Adam, ScoreNetwork
from podium_optimisers.learning.policy_gradient import DecisionBatch, policy_gradient_errors, train
from podium_optimisers.learning.row_groups import stack_groups


@dataclass(frozen=True, slots=True)
class Ppo:
    """Settings of PPO.

    `updates` rounds of `rollouts` episodes of each of `workloads` workloads. Each round makes `passes` over its
    decisions in batches of `batch_size`.
    """

    updates: int = 300
    workloads: int = 4
    rollouts: int = 6
    passes: int = 3
    batch_size: int = 512
    learning_rate: float = 2e-3
    clip: float = 0.2
    entropy: float = 1e-3
    hidden: tuple[int, ...] = (32, 32)
    distribution: EpisodeDistribution = field(default_factory=EpisodeDistribution)
    name: str = "ppo"

    def train(self, seed: int, report: Callable[[int, float], None] | None = None) -> ScoreNetwork:
        """Train a network for this seed; `report` as in `policy_gradient.train`."""
        return train(self, seed, report)

    def update(
        self, network: ScoreNetwork, adam: Adam, decisions: DecisionBatch, generator: np.random.Generator
    ) -> None:
        """Make `passes` over the round's decisions in batches, each pass in its own random order."""
        rows, choices, advantages = decisions.rows, decisions.chosen, decisions.advantages
        groups, stacked, chosen = stack_groups(rows, choices)
        before = groups.sums(groups.log_softmax(network.scores(stacked)) * chosen)
        for _ in range(self.passes):
            order = generator.permutation(len(rows))
            for at in range(0, len(order), self.batch_size):
                part = order[at : at + self.batch_size]
                self._step(network, adam, [rows[i] for i in part], choices[part], before[part], advantages[part])

    def _step(
        self, network: ScoreNetwork, adam: Adam, rows: list[Floats], choices: Ints, before: Floats, advantages: Floats
    ) -> None:
        """Make one clipped gradient step on a batch of decisions."""
        groups, stacked, chosen = stack_groups(rows, choices)
        log_probabilities = groups.log_softmax(network.scores(stacked))
        ratio = np.exp(groups.sums(log_probabilities * chosen) - before)
        # the gradient is 0 where the ratio is already clipped in the direction of the advantage
        free = np.where(advantages > 0.0, ratio < 1.0 + self.clip, ratio > 1.0 - self.clip)
        errors = policy_gradient_errors(log_probabilities, groups, chosen, advantages * ratio * free, self.entropy)
        adam.step(network.gradients(errors))
