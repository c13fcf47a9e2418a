"""Deep Q-learning (Mnih et al., Nature 518, 2015) with double targets (van Hasselt et al., AAAI 2016).

The network's score of a row is the worth of that choice: minus the cost to come, discounted by virtual time (decisions
are no clock: many fall into one instant; Bradtke and Duff, NIPS 1994). Costs after a choice are counted for `ahead`
decisions and then estimated by a copy of the network that lags. Values go up and down from round to round, and the
policy with them: every few rounds the network plays a set of workloads without curiosity, and the best is kept. Called
by `train`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from podium_optimisers.engine.workload import Floats
from podium_optimisers.learning.backlog import FEATURES
from podium_optimisers.learning.environment import Episodes, SchedulingEnv
from podium_optimisers.learning.network import Adam, Network
from podium_optimisers.learning.ragged import Groups
from podium_optimisers.learning.rollouts import Chooser, Trajectory, play


@dataclass(frozen=True, slots=True)
class Experience:
    """The chosen row, the discounted reward of the next decisions, and the rows that could be chosen after them
    (empty: the episode was over) with their discount.
    """

    row: Floats
    reward: float
    after: Floats
    discount: float


@dataclass(frozen=True, slots=True)
class Dqn:
    """`rounds` of `plays` episodes, each followed by `batches` steps on `batch` experiences of the last `memory`."""

    rounds: int = 200
    plays: int = 8
    batches: int = 40
    batch: int = 256
    memory: int = 40_000
    ahead: int = 32
    horizon: float = 200.0  # seconds of virtual time after which a cost counts 1/e
    rate: float = 3e-3
    lag: float = 0.01  # share by which the lagging copy moves at each step
    checks: int = 20  # workloads of the set that tells which network is kept
    every: int = 5  # rounds between two such checks
    hidden: tuple[int, ...] = (32, 32)
    episodes: Episodes = field(default_factory=Episodes)
    name: str = "dqn"

    def train(self, seed: int, report: Callable[[int, float], None] | None = None) -> Network:
        """Deterministic for a seed. `report(round, mean completion of its plays in seconds)`."""
        generator = np.random.default_rng(seed)
        network = Network.fresh(FEATURES, self.hidden, generator)
        behind = network.copy()
        adam = Adam(network, self.rate)
        env = SchedulingEnv(self.episodes)
        memory: list[Experience] = []
        exam = [self.episodes.draw(generator) for _ in range(self.checks)]
        best, least = network.copy(), float("inf")
        for turn in range(self.rounds):
            curious = max(0.05, 1.0 - 2.0 * turn / self.rounds)
            adam.rate = self.rate * (1.0 - 0.9 * turn / self.rounds)
            played = [
                play(env, self.episodes.draw(generator), _curious(network, curious, generator))
                for _ in range(self.plays)
            ]
            for trajectory in played:
                memory += self._experiences(trajectory)
            del memory[: max(0, len(memory) - self.memory)]
            for _ in range(self.batches):
                picked = [memory[at] for at in generator.integers(0, len(memory), self.batch)]
                self._improve(network, behind, adam, picked)
            if report is not None:
                report(turn, float(np.mean([trajectory.mean_completion for trajectory in played])))
            if (turn + 1) % self.every == 0:
                marks = [play(env, workload, _curious(network, 0.0, generator)).mean_completion for workload in exam]
                if float(np.mean(marks)) < least:
                    best, least = network.copy(), float(np.mean(marks))
        return best

    def _experiences(self, played: Trajectory) -> list[Experience]:
        found = []
        empty = np.zeros((0, FEATURES))
        for at in range(len(played.rows)):
            until = at + self.ahead
            weights = np.exp((played.times[at] - played.times[at:until]) / self.horizon)
            reward = float(played.rewards[at:until] @ weights)
            row = played.rows[at][played.chosen[at]]
            if until < len(played.rows):
                discount = float(np.exp((played.times[at] - played.times[until]) / self.horizon))
                found.append(Experience(row, reward, played.rows[until], discount))
            else:
                found.append(Experience(row, reward, empty, 0.0))
        return found

    def _improve(self, network: Network, behind: Network, adam: Adam, picked: list[Experience]) -> None:
        targets = np.array([one.reward for one in picked])
        going_on = [at for at, one in enumerate(picked) if len(one.after)]
        if going_on:
            groups = Groups.of(np.array([len(picked[at].after) for at in going_on], dtype=np.int64))
            after = np.concatenate([picked[at].after for at in going_on])
            scores = network.scores(after)
            best = scores == groups.spread(groups.highest(scores))  # chosen by the network, valued by its lagging copy
            worth = groups.sums(behind.scores(after) * best) / groups.sums(best.astype(np.float64))
            targets[going_on] += np.array([picked[at].discount for at in going_on]) * worth
        errors = network.scores(np.array([one.row for one in picked])) - targets
        adam.step(network.gradients(np.clip(errors, -1.0, 1.0) / len(picked)))  # Huber
        for mine, theirs in zip(behind.layers, network.layers, strict=True):
            for old, new in zip(mine, theirs, strict=True):
                old += self.lag * (new - old)


def _curious(network: Network, chance: float, generator: np.random.Generator) -> Chooser:
    """The best by score, or, with this chance, any."""

    def choose(rows: Floats) -> int:
        if generator.random() < chance:
            return int(generator.integers(len(rows)))
        return int(np.argmax(network.scores(rows)))

    return choose
