"""REINFORCE (Williams, Machine Learning 8, 1992): raise the chance of choices after which it went better than usual,
one step for each set of plays. Called by `train`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from podium_optimisers.learning.environment import Episodes
from podium_optimisers.learning.gradient import Decisions, policy_errors, train
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
        """The network of this seed; `report` as in `gradient.train`."""
        return train(self, seed, report)

    def improve(self, network: Network, adam: Adam, decisions: Decisions, generator: np.random.Generator) -> None:
        """One step on all decisions of the round."""
        groups, stacked, chosen = stack(decisions.rows, decisions.chosen)
        log_chances = groups.log_softmax(network.scores(stacked))
        adam.step(network.gradients(policy_errors(log_chances, groups, chosen, decisions.advantages, self.entropy)))
