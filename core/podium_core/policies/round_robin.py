"""Everybody in turn: the trial with the fewest GPU seconds goes next, after its holder has had a quantum. Nobody
starves.

Bound of the wait: whoever gives its GPU away had the fewest seconds a turn ago. So before it is next again, each other
trial trains at most that turn, to draw level, and one turn of its own: with n trials on a GPU and s + r seconds a
hand-over no live trial waits longer than 2 (n - 1) (T + s + r). T is the longest turn: `turn`, or (s + r) / 0.03 once
s + r of a trial are measured, and a tenth of a quantum for the gain that a hand-over must bring. A trial that comes
later first draws level with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from podium_core.curves.curve_table import board
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import Ranking, shortest_turn


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """`quantum`: seconds of one turn."""

    quantum: float = 10.0

    name: ClassVar[str] = "round_robin"
    needs_max_steps: ClassVar[bool] = False
    cuts: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not self.quantum > 0.0:
            raise ValueError(f"quantum: {self.quantum:g} seconds is no turn; give a number above 0")

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, self.quantum)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        seen = board(job, trials, snapshot)
        seconds = seen.seconds.copy()

        def say(row: int) -> tuple[str, str]:
            return "LeastServed", f"has had {seconds[row]:.1f} GPU seconds."

        return Ranking(seen, -seconds / self.quantum, 0, say)  # one quantum less used is a score of 1 more
