"""SLAQ: the trial with the largest predicted drop of its loss goes first, relative to the largest drop it has shown.

Zhang et al., SoCC 2017, built for classical machine learning jobs that share a cluster; as a policy for a search it is
a base, since what still falls fastest is rarely what ends best. OUR READING of the paper: the loss of a trial is fitted
by 1/(a k^2 + b k + c) + d, with a few candidates of d and weights that fade with age; its drop over the next evaluation
is divided by the largest drop of that trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from podium.curves.board import board
from podium.curves.wire import diverged
from podium.domain.snapshot import Costs, JobView, Point, Snapshot, TrialView
from podium.policies.base import Ranking, shortest_turn

LOOK, RANKED = 0, 1
FADE = 0.8
FLOORS = (0.03, 0.1, 0.5, 2.0)  # d lies so many times the range of the window below its least loss


@dataclass(frozen=True, slots=True)
class Slaq:
    """`early`: points that every trial may show before it is judged; `window`: points that a fit looks at."""

    early: int = 3
    window: int = 12

    name: ClassVar[str] = "slaq"
    needs_max_steps: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if self.early < 0:
            raise ValueError(f"early: {self.early} points cannot be asked for; give 0 or more")
        if self.window < 4:
            raise ValueError(f"window: {self.window} points are too few for a fit; give 4 or more")

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """O(window) a new point, O(n log n) a cycle."""
        seen = board(job, trials, snapshot)
        drops = seen.derive(("slaq", self.window), 1, lambda c: predicted_drop(c, seen.sign, self.window))[:, 0].copy()
        early = seen.points < self.early
        points = seen.points.copy()

        def say(row: int) -> tuple[str, str]:
            if early[row]:
                return "EarlyLook", f"has shown {points[row]} of the {self.early} points that every trial may show."
            return "PredictedDrop", f"its next gain is predicted to be {drops[row]:.3f} of the largest it has shown."

        return Ranking(seen, np.where(early, 0.0, drops), np.where(early, LOOK, RANKED), say)


def predicted_drop(curve: Sequence[Point], sign: float, window: int) -> float:
    """The drop of the loss over the next evaluation, as a share of the largest drop seen: 0 to 1; 0 for too few
    points.

    Each d gives a weighted linear least-squares problem in (a, b, c); the d with the smallest error of the loss is
    taken.
    """
    if len(curve) < 2 or diverged(curve[-1].value):
        return 0.0
    values = [-sign * p.value for p in curve if not diverged(p.value)]
    with np.errstate(over="ignore", invalid="ignore"):
        largest = float(-np.diff(values).min()) if len(values) > 1 else 0.0
    tail = [p for p in curve[-window:] if not diverged(p.value)]
    loss = np.array([-sign * p.value for p in tail])
    spread = float(loss.max() / 2 - loss.min() / 2) * 2
    if len(tail) < 4 or not 0.0 < largest < np.inf or not 0.0 < spread < np.inf:
        return 0.0
    scaled = (loss - loss.min()) / spread  # 0 to 1
    steps = np.array([p.step for p in tail])
    gap = steps[-1] - steps[-2]
    k = (steps - steps[0]) / (steps[-1] - steps[0])
    weights = FADE ** np.arange(len(tail) - 1, -1, -1)
    design = np.stack([k * k, k, np.ones_like(k)], axis=1) * weights[:, None]
    floors = np.array(FLOORS)
    inverse = 1.0 / (scaled[:, None] + floors)  # 1 / (loss - d), one column a d
    fit, *_ = np.linalg.lstsq(design, inverse * weights[:, None], rcond=None)
    ahead = 1.0 + gap / (steps[-1] - steps[0])
    curves = np.stack([k * k, k, np.ones_like(k)], axis=1) @ fit
    shown = 1.0 / np.maximum(curves, 1e-9) - floors
    chosen = int(np.argmin((weights[:, None] * (shown - scaled[:, None]) ** 2).sum(axis=0)))
    a, b, c = fit[:, chosen]
    future = 1.0 / max(a * ahead * ahead + b * ahead + c, 1e-9) - floors[chosen]
    # the quotient first, and bounded: the product with a huge spread overflows
    drop = (scaled[-1] - max(future, -floors[chosen])) * min(spread / largest, 1e12)
    return float(np.clip(drop, 0.0, 1.0))
