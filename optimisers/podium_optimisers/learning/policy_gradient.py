"""The common part of REINFORCE and PPO: training loop, rollouts, advantages and the policy gradient.

The baseline is measured on the same arrivals: each workload is played several times, and a choice's reward-to-go is
compared with that of the other episodes at the same virtual time (an input-dependent baseline; Mao et al., ICLR 2019).
Arrivals cause most of the variance, and it cancels without a value network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from podium_optimisers.arrays import Floats, Ints
from podium_optimisers.learning.backlog import FEATURES
from podium_optimisers.learning.environment import EpisodeDistribution, SchedulingEnv
from podium_optimisers.learning.network import Adam, ScoreNetwork
from podium_optimisers.learning.rollouts import ActionSelector, Trajectory, run_episode
from podium_optimisers.learning.row_groups import RowGroups


@dataclass(frozen=True, slots=True)
class DecisionBatch:
    """All d decisions of one round: the feasible rows, the chosen row (d,) and its advantage (d,)."""

    rows: list[Floats]
    chosen: Ints
    advantages: Floats


class PolicyGradient(Protocol):
    """A policy gradient method: the common settings and the update from one round of decisions."""

    @property
    def updates(self) -> int:
        """Return the number of rounds."""

    @property
    def workloads(self) -> int:
        """Return the number of workloads in a round."""

    @property
    def rollouts(self) -> int:
        """Return the number of episodes of each workload."""

    @property
    def learning_rate(self) -> float:
        """Return the learning rate."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """Return the widths of the hidden layers."""

    @property
    def distribution(self) -> EpisodeDistribution:
        """Return the distribution of episodes."""

    def update(
        self, network: ScoreNetwork, adam: Adam, decisions: DecisionBatch, generator: np.random.Generator
    ) -> None:
        """Update the network from one round of decisions."""


def train(method: PolicyGradient, seed: int, report: Callable[[int, float], None] | None = None) -> ScoreNetwork:
    """Train a network from scratch; deterministic for a seed.

    `report(update, mean completion)` receives the mean completion of the round's episodes in seconds.
    """
    generator = np.random.default_rng(seed)
    network = ScoreNetwork.random_init(FEATURES, method.hidden, generator)
    adam = Adam(network, method.learning_rate)
    env = SchedulingEnv(method.distribution)
    for update in range(method.updates):
        played, advantages = collect_rollouts(env, network, method.workloads, method.rollouts, generator)
        rows = [row for trajectory in played for row in trajectory.rows]
        chosen = np.concatenate([trajectory.chosen for trajectory in played])
        method.update(network, adam, DecisionBatch(rows, chosen, advantages), generator)
        if report is not None:
            report(update, float(np.mean([trajectory.mean_completion for trajectory in played])))
    return network


def collect_rollouts(
    env: SchedulingEnv, network: ScoreNetwork, workloads: int, rollouts: int, generator: np.random.Generator
) -> tuple[list[Trajectory], Floats]:
    """Run `rollouts` episodes of each of `workloads` random workloads.

    Returns the trajectories and the advantages of all their decisions in order, scaled to standard deviation 1.
    """
    played: list[Trajectory] = []
    advantages: list[Floats] = []
    for _ in range(workloads):
        workload = env.distribution.sample(generator)
        same = [run_episode(env, workload, softmax_sampler(network, generator)) for _ in range(rollouts)]
        played += same
        advantages += [_advantage(at, same) for at in range(len(same))]
    stacked = np.concatenate(advantages)
    return played, stacked / (float(np.std(stacked)) + 1e-8)


def softmax_sampler(network: ScoreNetwork, generator: np.random.Generator) -> ActionSelector:
    """Return a selector that samples from the softmax of the scores."""

    def choose(rows: Floats) -> int:
        scores = network.scores(rows)
        # Gumbel-max trick: the argmax of score + Gumbel noise is a sample from the softmax
        return int(np.argmax(scores + generator.gumbel(size=len(scores))))

    return choose


def policy_gradient_errors(
    log_probabilities: Floats, groups: RowGroups, chosen: Floats, weights: Floats, entropy: float
) -> Floats:
    """Return the gradient of the loss by the scores.

    The loss is minus the mean over decisions of weight x log probability of the chosen row + entropy bonus. `chosen`: 1
    for chosen rows, else 0. `weights`: one for each decision.
    """
    probabilities = np.exp(log_probabilities)
    decisions = len(groups.sizes)
    spread = groups.repeat(groups.sums(probabilities * log_probabilities))
    return (
        groups.repeat(weights) * (probabilities - chosen) + entropy * probabilities * (log_probabilities - spread)
    ) / decisions


def _advantage(at: int, same: list[Trajectory]) -> Floats:
    """Return the rewards-to-go minus the mean of the other episodes with the same arrivals at that time."""
    episode = same[at]
    others = [
        np.interp(episode.times, other.times, other.rewards_to_go, right=0.0)
        for index, other in enumerate(same)
        if index != at and len(other.times)
    ]
    return episode.rewards_to_go - np.mean(others, axis=0) if others else episode.rewards_to_go
