"""Hermes: the trials that converge fastest go first. PODIUM'S RECONSTRUCTION FROM AN ABSTRACT.

Son et al. (Electronics 2021, 10(3), 350) publish neither the convergence formula nor the preemption rule in the
available text. Known are the parts: early convergence identifies the few good combinations, trials queue per GPU, each
queue is ordered by convergence, and a better trial preempts.

Podium's rules: the first `warmup` points of every trial come first. Then the rank is convergence = (best - value at the
start) / range of the values in the job's pool. Results of this file are Podium's, not the paper's.

The value at the start is that of the untrained model. A curve whose first step is 0 holds it. Most scripts print their
first value after an epoch of training; then (best - own first value) punishes the trials that learned most in that
epoch. On 8 pools of 12 small networks (digits) this rule took 1.9 times as long as fifo. So by default (`start: pool`)
the worst first value of the pool is the start of all trials. `start: own` is the literal rule, for replays of curves
that begin untrained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable, curves_of_job
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import Ranking, limit_switch_share

WARM_UP, RANKED, DIVERGED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Hermes:
    """Hermes policy.

    `warmup`: points that every trial may report before it is judged. `min_time_slice`: smallest time slice in seconds.
    `hysteresis`: share of the pool's range by which a rival must be ahead, beyond the cost of the switch.
    """

    warmup: int = 3
    min_time_slice: float = 2.0
    hysteresis: float = 0.01
    start: Literal["own", "pool"] = "pool"

    name: ClassVar[str] = "hermes"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise ValueError(f"warmup: {self.warmup} is not a number of points; give 0 or more")
        if not self.min_time_slice >= 0.0:
            raise ValueError(f"minTimeSlice: {self.min_time_slice:g} seconds is not a duration; give 0 or more")
        if not 0.0 <= self.hysteresis <= 1.0:
            raise ValueError(f"hysteresis: {self.hysteresis:g} is not a share of the range; give 0 to 1")

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, self.min_time_slice)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """Return the ranking. O(n log n) plus the new points.

        The pool is the whole job: a finished trial still shows what is possible.
        """
        curves = curves_of_job(job, trials, snapshot)
        gained = self._convergence(curves)
        bad, in_warm_up = curves.diverged, curves.points < self.warmup
        levels = np.where(bad, DIVERGED, np.where(in_warm_up, WARM_UP, RANKED))
        points, best, sign = curves.points.copy(), curves.best.copy(), curves.sign

        def explain(row: int) -> tuple[str, str]:
            if bad[row]:
                return "Diverged", "its last value is not a finite number; all others go first."
            if in_warm_up[row]:
                return "WarmUp", f"has reported {points[row]} of the {self.warmup} points of its warm-up."
            value = f"best {sign * best[row]:.4g}" if np.isfinite(best[row]) else "no value yet"
            return "Convergence", f"gained {gained[row]:.3f} of the range of all trials' values ({value})."

        return Ranking(curves, np.where(levels == RANKED, gained, 0.0), levels, explain)

    def _convergence(self, curves: CurveTable) -> NDArray[np.float64]:
        """Return (best - start) / range of the pool by row, from 0 to 1."""
        valued = np.isfinite(curves.best)
        if not valued.any():
            return np.zeros(len(curves))
        width = float(curves.best[valued].max()) - float(curves.worst[valued].min())
        if not 0.0 < width < np.inf:
            return np.zeros(len(curves))
        start = curves.first if self.start == "own" else np.full(len(curves), curves.first[valued].min())
        gained = np.zeros(len(curves))
        # Divide before the subtraction: the difference of two huge values overflows.
        gained[valued] = np.clip(curves.best[valued] / width - start[valued] / width, 0.0, 1.0)
        return gained
