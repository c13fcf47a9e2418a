"""PPO (Schulman et al., 2017): several careful steps on the same plays, none further than the clip allows.

The advantage is the one against plays of the same arrivals, not a critic's (as in GRPO; Shao et al., 2024): a second
network that sees the queue but not the arrivals to come told so little apart that nothing was learned in a minute.
Called by `train`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from podium_optimisers.engine.workload import Floats, Ints
from podium_optimisers.learning.environment import Episodes
from podium_optimisers.learning.gradient import Decisions, policy_errors, train
from podium_optimisers.learning.network import Adam, Network
from podium_optimisers.learning.ragged import stack


@dataclass(frozen=True, slots=True)
class Ppo:
    """`updates` rounds of `plays` episodes of each of `workloads` workloads, gone through `passes` times in batches of
    `batch` decisions.
    """

    updates: int = 300
    workloads: int = 4
    plays: int = 6
    passes: int = 3
    batch: int = 512
    rate: float = 2e-3
    clip: float = 0.2
    entropy: float = 1e-3
    hidden: tuple[int, ...] = (32, 32)
    episodes: Episodes = field(default_factory=Episodes)
    name: str = "ppo"

    def train(self, seed: int, report: Callable[[int, float], None] | None = None) -> Network:
        """The network of this seed; `report` as in `gradient.train`."""
        return train(self, seed, report)

    def improve(self, network: Network, adam: Adam, decisions: Decisions, generator: np.random.Generator) -> None:
        """`passes` over the round's decisions in batches, each in an order of its own."""
        rows, picks, advantages = decisions.rows, decisions.chosen, decisions.advantages
        groups, stacked, chosen = stack(rows, picks)
        before = groups.sums(groups.log_softmax(network.scores(stacked)) * chosen)
        for _ in range(self.passes):
            order = generator.permutation(len(rows))
            for at in range(0, len(order), self.batch):
                part = order[at : at + self.batch]
                self._step(network, adam, [rows[i] for i in part], picks[part], before[part], advantages[part])

    def _step(
        self, network: Network, adam: Adam, rows: list[Floats], picks: Ints, before: Floats, advantages: Floats
    ) -> None:
        groups, stacked, chosen = stack(rows, picks)
        log_chances = groups.log_softmax(network.scores(stacked))
        ratio = np.exp(groups.sums(log_chances * chosen) - before)
        # beyond the clip, in the direction that the advantage wants, there is no gradient
        free = np.where(advantages > 0.0, ratio < 1.0 + self.clip, ratio > 1.0 - self.clip)
        errors = policy_errors(log_chances, groups, chosen, advantages * ratio * free, self.entropy)
        adam.step(network.gradients(errors))
