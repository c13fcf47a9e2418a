"""Best so far: warm up every trial, then rank by the best value, without regard to the training.

It has no paper: a person watching the curves would do the same. It is the strongest simple rival where the early rank
predicts the final rank. The replay also uses this order to train what a policy gave up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from podium_core.curves.curve_table import curves_of_job
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import Ranking, limit_switch_share

WARM_UP, RANKED, DIVERGED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class BestSoFar:
    """Best-so-far policy. `warmup`: points that every trial may report before it is judged."""

    warmup: int = 3

    name: ClassVar[str] = "best_so_far"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise ValueError(f"warmup: {self.warmup} is not a number of points; give 0 or more")

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        curves = curves_of_job(job, trials, snapshot)
        bad, in_warm_up = curves.diverged, curves.points < self.warmup
        levels = np.where(bad, DIVERGED, np.where(in_warm_up, WARM_UP, RANKED))
        # Share of the pool that is worse, not the value: a single loss of 1e9 must not make all others look equal.
        beaten = np.searchsorted(np.sort(curves.best), curves.best) / max(1, len(curves))
        points, best = curves.points.copy(), curves.sign * curves.best

        def explain(row: int) -> tuple[str, str]:
            if bad[row]:
                return "Diverged", "its last value is not a finite number; all others go first."
            if in_warm_up[row]:
                return "WarmUp", f"has reported {points[row]} of the {self.warmup} points of its warm-up."
            return "BestSoFar", f"its best value, {best[row]:.4g}, beats {100 * beaten[row]:.0f} % of the pool."

        return Ranking(curves, np.where(levels == RANKED, beaten, 0.0), levels, explain)
