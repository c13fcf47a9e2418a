"""First in, first out: each trial runs to its end, in the order of its number. The base that every other policy
must beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from podium_core.curves.curve_table import board
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import Ranking, shortest_turn


@dataclass(frozen=True, slots=True)
class Fifo:
    name: ClassVar[str] = "fifo"
    needs_max_steps: ClassVar[bool] = False
    cuts: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.0

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        seen = board(job, trials, snapshot)
        numbers = seen.numbers

        def say(row: int) -> tuple[str, str]:
            return "CreationOrder", f"trial {numbers[row]} in order of creation."

        # all scores alike: nobody is ever far enough ahead to take a GPU from its holder
        return Ranking(seen, np.zeros(len(seen)), 0, say)
