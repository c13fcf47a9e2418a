"""SLAQ: the trial with the largest predicted drop of its loss goes first, relative to the largest drop it has shown.

Zhang et al., SoCC 2017, built for classical machine learning jobs that share a cluster; as a policy for a search it is
a base, since what still falls fastest is rarely what ends best. OUR READING of the paper: the loss of a trial is fitted
by 1/(a k^2 + b k + c) + d, with a few candidates of d and weights that fade with age; its drop over the next evaluation
is divided by the largest drop of that trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import sub
from typing import ClassVar

import numpy as np

from podium_core.curves.curve_table import Floats, board
from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Costs, JobView, Point, Snapshot, TrialView
from podium_core.policies.base import Ranking, shortest_turn

LOOK, RANKED = 0, 1
FADE = 0.8
FLOORS = (0.03, 0.1, 0.5, 2.0)  # d lies so many times the range of the window below its least loss
_FLOORS = np.array(FLOORS)


@dataclass(frozen=True, slots=True)
class Slaq:
    """`early`: points that every trial may show before it is judged; `window`: points that a fit looks at."""

    early: int = 3
    window: int = 12

    name: ClassVar[str] = "slaq"
    needs_max_steps: ClassVar[bool] = False
    cuts: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if self.early < 0:
            raise ValueError(f"warmup: {self.early} points cannot be asked for; give 0 or more")
        if self.window < 4:
            raise ValueError(f"window: {self.window} points are too few for a fit; give 4 or more")

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """O(points) a new point, for the largest drop of its whole curve; O(n log n) a cycle."""
        seen = board(job, trials, snapshot)
        drops = seen.derive(("slaq", self.window), 1, lambda c: predicted_drop(c, seen.sign, self.window))[:, 0].copy()
        early = seen.points < self.early
        points = seen.points.copy()

        def say(row: int) -> tuple[str, str]:
            if early[row]:
                return "WarmUp", f"has shown {points[row]} of the {self.early} points that every trial may show."
            return "PredictedDrop", f"its next gain is predicted to be {drops[row]:.3f} of the largest it has shown."

        return Ranking(seen, np.where(early, 0.0, drops), np.where(early, LOOK, RANKED), say)


def predicted_drop(curve: Sequence[Point], sign: float, window: int) -> float:
    """The drop of the loss over the next evaluation, as a share of the largest drop seen: 0 to 1; 0 for too few
    points. The largest is that of the whole curve, all else is of the window.

    Each d gives a weighted linear least-squares problem in (a, b, c); the d with the smallest error of the loss is
    taken.
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
    weights, floors = _weights(len(tail)), _FLOORS
    basis = np.empty((len(tail), 3))
    basis[:, 0], basis[:, 1], basis[:, 2] = k * k, k, 1.0
    inverse = 1.0 / (scaled[:, None] + floors)  # 1 / (loss - d), one column a d
    fit, *_ = np.linalg.lstsq(basis * weights, inverse * weights, rcond=None)
    ahead = 1.0 + (last - tail[-2].step) / (last - first)
    shown = 1.0 / np.maximum(basis @ fit, 1e-9) - floors
    chosen = int((weights * (shown - scaled[:, None]) ** 2).sum(axis=0).argmin())
    a, b, c = fit[:, chosen].tolist()
    future = 1.0 / max(a * ahead * ahead + b * ahead + c, 1e-9) - FLOORS[chosen]
    # the quotient first, and bounded: the product with a huge spread overflows
    drop = (float(scaled[-1]) - max(future, -FLOORS[chosen])) * min(spread / largest, 1e12)
    return float(min(max(drop, 0.0), 1.0))


@lru_cache(maxsize=64)
def _weights(points: int) -> Floats:
    """A column: the latest counts 1, each one before it less. Not to be written into."""
    return np.asarray(FADE ** np.arange(points - 1, -1, -1))[:, None]
