"""Asynchronous successive halving: a trial pauses at each rung and goes on when it is in the best 1/eta of those that
came so far. Li et al., MLSys 2020, algorithm 2 (promotion), with real suspension in the place of a new start. Who has
trained beyond a rung stands on it all the same unless it was in the best part there at some moment since it came: only
then has anybody let it go on.

`onCut: stop` is the rule without promotion that Ray Tune has: who is not in the best 1/eta on arrival ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from podium.curves.board import board
from podium.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium.policies.base import Admission, OnCut, Ranking, shortest_turn
from podium.policies.horizon import horizon
from podium.policies.promotable import ever_promotable
from podium.policies.rungs import Halving, check_halving, climb, finisher, rung_steps, stand, top


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
        steps = rung_steps(horizon(job, seen), self.eta, self.rungs)
        stop = self.on_cut == "stop"
        least = 1 if stop else 0
        climbed = climb(seen, steps)
        found = stand(climbed, ever_promotable(seen, climbed, steps, self.eta, least, ()))
        promoted = np.zeros(len(seen), dtype=bool)
        for k in range(self.rungs):
            here = found.rung == k
            if here.any():
                promoted |= here & top(found.value[:, k], self.eta, least)
        if not stop:
            promoted |= finisher(job, seen, found, promoted)
        cut = Admission.STOP if stop else Admission.WAIT
        return Halving(found, promoted, np.zeros(len(seen), dtype=bool), self.rungs).ranking(seen, cut)
