"""What a ranking policy is. The planner calls it once a cycle for each job; the simulator and `podium plan` call
the same.

A policy orders the trials of one job. It does not know GPUs: the planner restricts its order to the trials that
share one, and decides with `turn` (minimum run), `hysteresis` and the measured costs whether a better rank is worth
a hand-over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from podium.domain.snapshot import Costs, JobView, Snapshot, TrialKey, TrialView


@dataclass(frozen=True, slots=True)
class Ranked:
    """One trial's rank. A lower `level` beats a higher one whatever the scores; within a level the score's
    difference is the gain.
    """

    trial: TrialKey
    rank: int  # 1 = first
    score: float
    level: int
    reason: str
    message: str


class Policy(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def needs_max_steps(self) -> bool: ...

    @property
    def hysteresis(self) -> float:
        """What a rival's score must be ahead, on top of the cost of the hand-over."""
        ...

    def turn(self, costs: Costs) -> float:
        """Seconds that a trial keeps its GPU before rivals are looked at."""
        ...

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> tuple[Ranked, ...]:
        """Each of `trials` once, best first; the same for the same facts, whatever the order of its arguments."""
        ...


@dataclass(frozen=True, slots=True)
class Scored:
    """A trial before it has its rank: made by the policies, turned into Ranked by `rank_all`."""

    trial: TrialView
    score: float
    level: int
    reason: str
    message: str


def rank_all(scored: Sequence[Scored]) -> tuple[Ranked, ...]:
    """By level, then score, then number, then name: no tie is left to chance. O(n log n)."""
    ordered = sorted(scored, key=lambda s: (s.level, -s.score, s.trial.number, s.trial.key))
    return tuple(
        Ranked(s.trial.key, place, s.score, s.level, s.reason, f"Rank {place} of {len(ordered)}: {s.message}")
        for place, s in enumerate(ordered, start=1)
    )


def shortest_turn(costs: Costs, least: float) -> float:
    """No turn is so short that hand-overs take more than a tenth of it."""
    return max(least, 10.0 * (costs.suspend + costs.resume))
