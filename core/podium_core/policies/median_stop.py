"""Median rule: trials run in order and end when they fall behind the median of the others.

A trial's best value is compared with the median of the others' running means at the same training. Golovin et al.,
Google Vizier, KDD 2017, section 3.2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from podium_core.curves.curve_table import curves_of_job
from podium_core.curves.prediction.running_means import RunningMeans
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import OnCut, Ranking, limit_switch_share
from podium_core.policies.trial_length import horizon


@dataclass(frozen=True, slots=True)
class MedianStop:
    """Median policy.

    `grace`: share of a whole trial in which no trial is judged. `peers`: number of other trials that must have trained
    as far.
    """

    grace: float = 0.1
    peers: int = 4
    on_cut: OnCut = "stop"

    name: ClassVar[str] = "median_stop"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = True
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.grace <= 1.0:
            raise ValueError(f"grace: {self.grace:g} is not a share of a trial; give 0 to 1")
        if self.peers < 1:
            raise ValueError(f"peers: {self.peers} trials have no median; give 1 or more")

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """Return the ranking. O(n log n) for each step that a new point reaches."""
        curves = curves_of_job(job, trials, snapshot)
        grace = self.grace * horizon(job, curves)
        judged = curves.ranked_rows[
            (curves.points[curves.ranked_rows] > 0) & (curves.step[curves.ranked_rows] >= grace)
        ]
        means = curves.cached(("medians of others", self.peers), lambda: RunningMeans(len(curves)))
        medians = means.medians(curves, judged, self.peers)
        cut = curves.best < medians
        numbers, best, sign = curves.numbers, curves.best.copy(), curves.sign
        stopped = cut if self.on_cut == "stop" else None

        def explain(row: int) -> tuple[str, str]:
            if cut[row]:
                text = f"its best value, {sign * best[row]:.4g}, is worse than {sign * medians[row]:.4g}, the median"
                return "BelowMedian", f"{text} of the others' running means at the same training."
            return "CreationOrder", f"trial {numbers[row]} in order of creation."

        return Ranking(curves, np.zeros(len(curves)), np.where(cut, 1, 0), explain, cut, stopped)
