"""Asynchronous successive halving (ASHA): a trial pauses at a rung until it is in the best 1/eta.

Li et al., MLSys 2020, algorithm 2 (promotion), with real suspension instead of a restart. A trial that has trained past
a rung still stands on it, unless it was in the best part there at some moment since it arrived. Where no trial may
continue and no new trial can arrive, the best trial of the highest rung continues to the end.

`onCut: stop` is Ray Tune's rule without promotion: a trial that is not in the best 1/eta on arrival is ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from podium_core.curves.curve_table import curves_of_job
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.asynchronous_halving import asynchronous_promotions
from podium_core.policies.base import OnCut, Ranking, limit_switch_share
from podium_core.policies.halving import halving_ranking
from podium_core.policies.rungs import check_halving, rung_steps
from podium_core.policies.trial_length import horizon


@dataclass(frozen=True, slots=True)
class Asha:
    """ASHA policy.

    `eta`: one in eta trials is promoted. `rungs`: number of rungs below the end; the lowest is at maxSteps *
    eta^-rungs.
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

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """Return the ranking. O(n log n) plus the new points."""
        curves = curves_of_job(job, trials, snapshot)
        steps, stop = rung_steps(horizon(job, curves), self.eta, self.rungs), self.on_cut == "stop"
        halving = asynchronous_promotions(job, curves, steps, self.eta, stop, np.zeros(len(curves), dtype=np.intp))
        return halving_ranking(job, curves, halving, stop)
