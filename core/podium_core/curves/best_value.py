"""The best that a curve holds. Direction-aware; diverged values never count as good."""

from __future__ import annotations

from collections.abc import Sequence

from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Point


def better(a: float, b: float, maximize: bool) -> bool:
    """Strictly better: an equal value later is no improvement."""
    return a > b if maximize else a < b


def reached(value: float, target: float, maximize: bool) -> bool:
    return not diverged(value) and not better(target, value, maximize)


def best_point(curve: Sequence[Point], maximize: bool) -> Point | None:
    """The earliest of the best points, None where nothing finite was reported. O(n)."""
    best: Point | None = None
    for point in curve:
        if not diverged(point.value) and (best is None or better(point.value, best.value, maximize)):
            best = point
    return best
