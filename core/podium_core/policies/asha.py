"""Asynchronous successive halving: a trial pauses at each rung and goes on when it is in the best 1/eta of those that
came so far. Li et al., MLSys 2020, algorithm 2 (promotion), with real suspension in the place of a new start. Who has
trained beyond a rung stands on it all the same unless it was in the best part there at some moment since it came. Where
nobody may go on and nobody can come, the best of the highest rung goes on to the end.

`onCut: stop` is the rule without promotion that Ray Tune has: who is not in the best 1/eta on arrival ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from podium_core.curves.curve_table import board
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.asynchronous_halving import asynchronous
from podium_core.policies.base import OnCut, Ranking, shortest_turn
from podium_core.policies.rungs import check_halving, ranked, rung_steps
from podium_core.policies.trial_length import horizon


@dataclass(frozen=True, slots=True)
class Asha:
    """`eta`: one in so many is promoted; `rungs`: how many there are below the end, the lowest at
    maxSteps * eta^-rungs.
    """

    eta: float = 4.0
    rungs: int = 3
    on_cut: OnCut = "suspend"

    name: ClassVar[str] = "asha"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = True
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_halving(self.eta, self.rungs)

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """O(n log n) and the new points."""
        seen = board(job, trials, snapshot)
        steps, stop = rung_steps(horizon(job, seen), self.eta, self.rungs), self.on_cut == "stop"
        halving = asynchronous(job, seen, steps, self.eta, stop, np.zeros(len(seen), dtype=np.intp))
        return ranked(job, seen, halving, stop)
