"""What REINFORCE and PPO share: the rounds of training, plays of the same arrivals, how much better each choice went
than usual, and the gradient of a choice's chance. Called by both trainers.

Usual is measured on the same arrivals: each workload is played several times, and a choice's cost to go is compared
with that of the other plays at the same virtual time (an input-dependent baseline; Mao et al., ICLR 2019). Arrivals are
the most of the noise, and so they cancel; no second network has to guess them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from podium_optimisers.engine.workload import Floats, Ints
from podium_optimisers.learning.backlog import FEATURES
from podium_optimisers.learning.environment import Episodes, SchedulingEnv
from podium_optimisers.learning.network import Adam, Network
from podium_optimisers.learning.ragged import Groups
from podium_optimisers.learning.rollouts import Chooser, Trajectory, play


@dataclass(frozen=True, slots=True)
class Decisions:
    """All d decisions of one round: the rows that could be chosen, which was, and the advantage of it (both (d,))."""

    rows: list[Floats]
    chosen: Ints
    advantages: Floats


class PolicyGradient(Protocol):
    """The settings that both methods have, and what each makes of a round's decisions."""

    @property
    def updates(self) -> int: ...

    @property
    def workloads(self) -> int: ...

    @property
    def plays(self) -> int: ...

    @property
    def rate(self) -> float: ...

    @property
    def hidden(self) -> tuple[int, ...]: ...

    @property
    def episodes(self) -> Episodes: ...

    def improve(self, network: Network, adam: Adam, decisions: Decisions, generator: np.random.Generator) -> None: ...


def train(method: PolicyGradient, seed: int, report: Callable[[int, float], None] | None = None) -> Network:
    """A network from scratch; the same for the same seed. `report(update, mean completion of its plays in seconds)`."""
    generator = np.random.default_rng(seed)
    network = Network.fresh(FEATURES, method.hidden, generator)
    adam = Adam(network, method.rate)
    env = SchedulingEnv(method.episodes)
    for update in range(method.updates):
        played, advantages = play_together(env, network, method.workloads, method.plays, generator)
        rows = [row for trajectory in played for row in trajectory.rows]
        chosen = np.concatenate([trajectory.chosen for trajectory in played])
        method.improve(network, adam, Decisions(rows, chosen, advantages), generator)
        if report is not None:
            report(update, float(np.mean([trajectory.mean_completion for trajectory in played])))
    return network


def play_together(
    env: SchedulingEnv, network: Network, workloads: int, plays: int, generator: np.random.Generator
) -> tuple[list[Trajectory], Floats]:
    """`plays` episodes of each of `workloads` drawn workloads, and the advantages of all their decisions in turn,
    scaled to deviation 1.
    """
    played: list[Trajectory] = []
    advantages: list[Floats] = []
    for _ in range(workloads):
        workload = env.episodes.draw(generator)
        same = [play(env, workload, sampler(network, generator)) for _ in range(plays)]
        played += same
        advantages += [_advantage(at, same) for at in range(len(same))]
    found = np.concatenate(advantages)
    return played, found / (float(np.std(found)) + 1e-8)


def sampler(network: Network, generator: np.random.Generator) -> Chooser:
    """Chooses by chance, by the softmax of the scores."""

    def choose(rows: Floats) -> int:
        scores = network.scores(rows)
        # the largest of score + Gumbel noise is a draw from the softmax
        return int(np.argmax(scores + generator.gumbel(size=len(scores))))

    return choose


def policy_errors(log_chances: Floats, groups: Groups, chosen: Floats, weights: Floats, entropy: float) -> Floats:
    """Gradient by scores of minus the mean over decisions of weight x log chance of the chosen + entropy bonus.

    `chosen`: 1 for chosen rows, else 0; `weights`: one a decision.
    """
    chances = np.exp(log_chances)
    decisions = len(groups.sizes)
    spread = groups.spread(groups.sums(chances * log_chances))
    return (groups.spread(weights) * (chances - chosen) + entropy * chances * (log_chances - spread)) / decisions


def _advantage(at: int, same: list[Trajectory]) -> Floats:
    """Reward to go, less the mean of what the other plays of the same arrivals had to go at that time."""
    mine = same[at]
    others = [
        np.interp(mine.times, other.times, other.to_go, right=0.0)
        for place, other in enumerate(same)
        if place != at and len(other.times)
    ]
    return mine.to_go - np.mean(others, axis=0) if others else mine.to_go
