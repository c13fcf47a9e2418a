"""First in, first out: each trial runs to its end, in the order of its number. The base that every other policy
must beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from podium.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium.policies.base import Ranked, Scored, rank_all, shortest_turn


@dataclass(frozen=True, slots=True)
class Fifo:
    name: ClassVar[str] = "fifo"
    needs_max_steps: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.0

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> tuple[Ranked, ...]:
        # all scores alike: nobody is ever far enough ahead to take a GPU from its holder
        return rank_all([Scored(t, 0.0, 0, "InOrder", f"trial {t.number} in order of creation.") for t in trials])
