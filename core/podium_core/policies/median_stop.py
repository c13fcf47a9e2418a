"""The median rule: in order, and a trial ends when its best is worse than the median of the others' running means at
the same training. Golovin et al., Google Vizier, KDD 2017, section 3.2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from podium_core.curves.curve_table import board
from podium_core.curves.running_means import RunningMeans
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import OnCut, Ranking, shortest_turn
from podium_core.policies.trial_length import horizon


@dataclass(frozen=True, slots=True)
class MedianStop:
    """`grace`: share of a whole trial that nobody is judged in; `peers`: so many others must have come as far."""

    grace: float = 0.1
    peers: int = 4
    on_cut: OnCut = "stop"

    name: ClassVar[str] = "median_stop"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = True
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.grace <= 1.0:
            raise ValueError(f"grace: {self.grace:g} is no share of a trial; give 0 to 1")
        if self.peers < 1:
            raise ValueError(f"peers: {self.peers} trials have no median; give 1 or more")

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """O(n log n) for each step that a new point reaches."""
        seen = board(job, trials, snapshot)
        grace = self.grace * horizon(job, seen)
        judged = seen.given[(seen.points[seen.given] > 0) & (seen.step[seen.given] >= grace)]
        means = seen.keep(("medians of others", self.peers), lambda: RunningMeans(len(seen)))
        medians = means.medians(seen, judged, self.peers)
        cut = seen.best < medians
        numbers, best, sign = seen.numbers, seen.best.copy(), seen.sign
        stopped = cut if self.on_cut == "stop" else None

        def say(row: int) -> tuple[str, str]:
            if cut[row]:
                text = f"its best value, {sign * best[row]:.4g}, is worse than {sign * medians[row]:.4g}, the median"
                return "BelowMedian", f"{text} of the others' running means at the same training."
            return "CreationOrder", f"trial {numbers[row]} in order of creation."

        return Ranking(seen, np.zeros(len(seen)), np.where(cut, 1, 0), say, cut, stopped)
