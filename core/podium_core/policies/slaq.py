"""SLAQ: the trial with the largest predicted relative drop of its loss goes first.

Zhang et al., SoCC 2017, built for classical machine learning jobs that share a cluster. As a policy for a search it is
a baseline: the trial whose loss falls fastest rarely ends best. PODIUM'S READING of the paper: a trial's loss is fitted
by 1/(a k^2 + b k + c) + d. A few candidates of d are tried, and older values weigh less. Its drop over the next
evaluation is divided by the trial's largest drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import sub
from typing import ClassVar

import numpy as np

from podium_core.curves.curve_table import curves_of_job
from podium_core.curves.non_finite import diverged
from podium_core.curves.statistics import Floats
from podium_core.domain.snapshot import Costs, JobView, Point, Snapshot, TrialView
from podium_core.policies.base import Ranking, limit_switch_share

WARM_UP, RANKED = 0, 1
FADE = 0.8
OFFSETS = (0.03, 0.1, 0.5, 2.0)  # candidates of d, below the smallest loss in units of the window's range
_OFFSETS = np.array(OFFSETS)


@dataclass(frozen=True, slots=True)
class Slaq:
    """SLAQ policy.

    `warmup`: points that every trial may report before it is judged. `window`: points that a fit uses.
    """

    warmup: int = 3
    window: int = 12

    name: ClassVar[str] = "slaq"
    needs_max_steps: ClassVar[bool] = False
    cuts: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise ValueError(f"warmup: {self.warmup} is not a number of points; give 0 or more")
        if self.window < 4:
            raise ValueError(f"window: {self.window} points are too few for a fit; give 4 or more")

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """Return the ranking. O(points) per new point, for the largest drop of the curve; O(n log n) a cycle."""
        curves = curves_of_job(job, trials, snapshot)
        table = curves.per_curve(("slaq", self.window), 1, lambda c: predicted_drop(c, curves.sign, self.window))
        drops = table[:, 0].copy()
        in_warm_up = curves.points < self.warmup
        points = curves.points.copy()

        def explain(row: int) -> tuple[str, str]:
            if in_warm_up[row]:
                return "WarmUp", f"has reported {points[row]} of the {self.warmup} points of its warm-up."
            return "PredictedDrop", f"its next gain is predicted to be {drops[row]:.3f} of the largest it has shown."

        return Ranking(curves, np.where(in_warm_up, 0.0, drops), np.where(in_warm_up, WARM_UP, RANKED), explain)


def predicted_drop(curve: Sequence[Point], sign: float, window: int) -> float:
    """Return the predicted drop of the loss as a share of the largest drop: 0 to 1.

    The prediction is for the next evaluation. 0 for too few points. The largest drop is that of the whole curve, all
    else uses the window. Each d gives a weighted linear least-squares problem in (a, b, c); the d with the smallest
    error of the loss is taken.
    """
    if len(curve) < 2 or diverged(curve[-1].value):
        return 0.0
    values = [-sign * p.value for p in curve if not diverged(p.value)]
    largest = max(map(sub, values, values[1:]), default=0.0)
    tail = [p for p in curve[-window:] if not diverged(p.value)]
    losses = values[-len(tail) :]
    least = min(losses)
    spread = (max(losses) / 2 - least / 2) * 2
    if len(tail) < 4 or not 0.0 < largest < np.inf or not 0.0 < spread < np.inf:
        return 0.0
    scaled = (np.array(losses) - least) / spread  # 0 to 1
    first, last = tail[0].step, tail[-1].step
    k = (np.array([p.step for p in tail]) - first) / (last - first)
    weights, offsets = _weights(len(tail)), _OFFSETS
    basis = np.empty((len(tail), 3))
    basis[:, 0], basis[:, 1], basis[:, 2] = k * k, k, 1.0
    inverse = 1.0 / (scaled[:, None] + offsets)  # 1 / (loss - d), one column per d
    fit, *_ = np.linalg.lstsq(basis * weights, inverse * weights, rcond=None)
    ahead = 1.0 + (last - tail[-2].step) / (last - first)
    shown = 1.0 / np.maximum(basis @ fit, 1e-9) - offsets
    chosen = int((weights * (shown - scaled[:, None]) ** 2).sum(axis=0).argmin())
    a, b, c = fit[:, chosen].tolist()
    future = 1.0 / max(a * ahead * ahead + b * ahead + c, 1e-9) - OFFSETS[chosen]
    # Bound the quotient first: the product with a huge spread overflows.
    drop = (float(scaled[-1]) - max(future, -OFFSETS[chosen])) * min(spread / largest, 1e12)
    return float(min(max(drop, 0.0), 1.0))


@lru_cache(maxsize=64)
def _weights(points: int) -> Floats:
    """Return a column of weights: 1 for the latest point, less for each one before. Do not write into it."""
    return np.asarray(FADE ** np.arange(points - 1, -1, -1))[:, None]
