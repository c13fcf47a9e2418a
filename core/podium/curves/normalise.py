"""Curves of different metrics on one scale: 0 = the worst value seen in the pool, 1 = the best, whatever the
direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podium.curves.wire import diverged
from podium.domain.snapshot import Point


@dataclass(frozen=True, slots=True)
class Scale:
    worst: float
    best: float

    def of(self, value: float) -> float:
        """A diverged value is worth 0; where all values are alike each is worth 1."""
        if diverged(value):
            return 0.0
        width = abs(self.best / 2 - self.worst / 2)
        if width == 0.0:
            return 1.0
        return min(1.0, max(0.0, abs(value / 2 - self.worst / 2) / width))


def scale_of(curves: Sequence[Sequence[Point]], maximize: bool) -> Scale | None:
    """The scale of a pool; None where it holds no finite value. O(points)."""
    values = [point.value for curve in curves for point in curve if not diverged(point.value)]
    if not values:
        return None
    low, high = min(values), max(values)
    return Scale(worst=low, best=high) if maximize else Scale(worst=high, best=low)


def normalise(curve: Sequence[Point], scale: Scale) -> tuple[Point, ...]:
    return tuple(Point(point.step, scale.of(point.value), point.time) for point in curve)
