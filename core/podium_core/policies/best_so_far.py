"""Best so far: a look at every trial, then the best value goes first, whatever it took to get there.

No paper: it is what a person does who watches the curves. The strongest simple rival where early rank tells the final
one, and the order in which the replay trains what a policy gave up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from podium_core.curves.curve_table import board
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import Ranking, shortest_turn

LOOK, RANKED, DIVERGED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class BestSoFar:
    """`early`: points that every trial may show before it is judged."""

    early: int = 3

    name: ClassVar[str] = "best_so_far"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if self.early < 0:
            raise ValueError(f"warmup: {self.early} points cannot be asked for; give 0 or more")

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        seen = board(job, trials, snapshot)
        bad, early = seen.diverged, seen.points < self.early
        levels = np.where(bad, DIVERGED, np.where(early, LOOK, RANKED))
        # the share of the pool that is worse, not the value: one loss of 1e9 must not make all others look alike
        beaten = np.searchsorted(np.sort(seen.best), seen.best) / max(1, len(seen))
        points, best = seen.points.copy(), seen.sign * seen.best

        def say(row: int) -> tuple[str, str]:
            if bad[row]:
                return "Diverged", "its last value is not a finite number, all others go first."
            if early[row]:
                return "WarmUp", f"has shown {points[row]} of the {self.early} points that every trial may show."
            return "BestSoFar", f"its best value, {best[row]:.4g}, beats {100 * beaten[row]:.0f} % of the pool."

        return Ranking(seen, np.where(levels == RANKED, beaten, 0.0), levels, say)
