"""Deep Q-learning (Mnih et al., Nature 518, 2015) with double targets (van Hasselt et al., AAAI 2016).

The network's score of a row estimates the action value: minus the future cost, discounted by virtual time. Decisions
are not a clock, since many fall into one instant (Bradtke and Duff, NIPS 1994). Returns are n-step: rewards of the next
`n_step` decisions, then the estimate of a target network that follows slowly. Values, and the policy with them,
fluctuate from round to round. Therefore the network is evaluated greedily on a validation set every few rounds, and the
best one is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.learning.backlog import FEATURES
from podium_optimisers.learning.environment import EpisodeDistribution, SchedulingEnv
from podium_optimisers.learning.network import Adam, ScoreNetwork
from podium_optimisers.learning.rollouts import ActionSelector, Trajectory, run_episode
from podium_optimisers.learning.row_groups import RowGroups


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition: the chosen row, the n-step reward and the rows that were feasible afterwards.

    `reward` is discounted. `after` is empty if the episode was over; `discount` applies to its value.
    """

    row: Floats
    reward: float
    after: Floats
    discount: float


@dataclass(frozen=True, slots=True)
class Dqn:
    """Settings of deep Q-learning.

    `rounds` of `rollouts` episodes, each followed by `updates_per_round` steps on `batch_size` transitions of the last
    `replay_size`.
    """

    rounds: int = 200
    rollouts: int = 8
    updates_per_round: int = 40
    batch_size: int = 256
    replay_size: int = 40_000
    n_step: int = 32
    discount_time: float = 200.0  # seconds of virtual time in which the weight of a cost falls to 1/e
    learning_rate: float = 3e-3
    target_update_rate: float = 0.01  # share by which the target network follows at each step
    validation_workloads: int = 20
    validation_interval: int = 5  # rounds
    hidden: tuple[int, ...] = (32, 32)
    distribution: EpisodeDistribution = field(default_factory=EpisodeDistribution)
    name: str = "dqn"

    def train(self, seed: int, report: Callable[[int, float], None] | None = None) -> ScoreNetwork:
        """Train a network; deterministic for a seed.

        `report(round, mean completion)` receives the mean completion of the round's episodes in seconds.
        """
        generator = np.random.default_rng(seed)
        network = ScoreNetwork.random_init(FEATURES, self.hidden, generator)
        target_network = network.copy()
        adam = Adam(network, self.learning_rate)
        env = SchedulingEnv(self.distribution)
        replay: list[Transition] = []
        validation_set = [self.distribution.sample(generator) for _ in range(self.validation_workloads)]
        best, least = network.copy(), float("inf")
        for round_number in range(self.rounds):
            epsilon = max(0.05, 1.0 - 2.0 * round_number / self.rounds)
            adam.learning_rate = self.learning_rate * (1.0 - 0.9 * round_number / self.rounds)
            played = [
                run_episode(env, self.distribution.sample(generator), _epsilon_greedy(network, epsilon, generator))
                for _ in range(self.rollouts)
            ]
            for trajectory in played:
                replay += self._transitions(trajectory)
            del replay[: max(0, len(replay) - self.replay_size)]
            for _ in range(self.updates_per_round):
                sampled = [replay[at] for at in generator.integers(0, len(replay), self.batch_size)]
                self._update(network, target_network, adam, sampled)
            if report is not None:
                report(round_number, float(np.mean([trajectory.mean_completion for trajectory in played])))
            if (round_number + 1) % self.validation_interval == 0:
                greedy = _epsilon_greedy(network, 0.0, generator)
                costs = [run_episode(env, workload, greedy).mean_completion for workload in validation_set]
                if float(np.mean(costs)) < least:
                    best, least = network.copy(), float(np.mean(costs))
        return best

    def _transitions(self, played: Trajectory) -> list[Transition]:
        """Return the n-step transitions of one episode."""
        transitions = []
        empty = np.zeros((0, FEATURES))
        for at in range(len(played.rows)):
            end = at + self.n_step
            weights = np.exp((played.times[at] - played.times[at:end]) / self.discount_time)
            reward = float(played.rewards[at:end] @ weights)
            row = played.rows[at][played.chosen[at]]
            if end < len(played.rows):
                discount = float(np.exp((played.times[at] - played.times[end]) / self.discount_time))
                transitions.append(Transition(row, reward, played.rows[end], discount))
            else:
                transitions.append(Transition(row, reward, empty, 0.0))
        return transitions

    def _update(
        self, network: ScoreNetwork, target_network: ScoreNetwork, adam: Adam, sampled: list[Transition]
    ) -> None:
        """Make one gradient step on these transitions and move the target network."""
        targets = np.array([transition.reward for transition in sampled])
        unfinished = [at for at, transition in enumerate(sampled) if len(transition.after)]
        if unfinished:
            groups = RowGroups.of(np.array([len(sampled[at].after) for at in unfinished], dtype=np.int64))
            after = np.concatenate([sampled[at].after for at in unfinished])
            scores = network.scores(after)
            # double targets: the network chooses the row, the target network estimates its value
            best = scores == groups.repeat(groups.maxima(scores))
            values = groups.sums(target_network.scores(after) * best) / groups.sums(best.astype(np.float64))
            targets[unfinished] += np.array([sampled[at].discount for at in unfinished]) * values
        errors = network.scores(np.array([transition.row for transition in sampled])) - targets
        adam.step(network.gradients(np.clip(errors, -1.0, 1.0) / len(sampled)))  # gradient of the Huber loss
        for target_layer, layer in zip(target_network.layers, network.layers, strict=True):
            for old, new in zip(target_layer, layer, strict=True):
                old += self.target_update_rate * (new - old)


def _epsilon_greedy(network: ScoreNetwork, epsilon: float, generator: np.random.Generator) -> ActionSelector:
    """Return an epsilon-greedy selector.

    It selects the row with the highest score or, with probability `epsilon`, any row.
    """

    def choose(rows: Floats) -> int:
        if generator.random() < epsilon:
            return int(generator.integers(len(rows)))
        return int(np.argmax(network.scores(rows)))

    return choose
