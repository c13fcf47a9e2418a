"""Best value of a curve. Respects the metric's direction; diverged values never count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Point

T = TypeVar("T")


def better(a: float, b: float, maximize: bool) -> bool:
    """Return whether `a` is strictly better than `b`."""
    return a > b if maximize else a < b


def reached(value: float, target: float, maximize: bool) -> bool:
    return not diverged(value) and not better(target, value, maximize)


def best_point(curve: Sequence[Point], maximize: bool) -> Point | None:
    """Return the earliest of the best points; None where no finite value was reported. O(n)."""
    best: Point | None = None
    for point in curve:
        if not diverged(point.value) and (best is None or better(point.value, best.value, maximize)):
            best = point
    return best


def best_of(candidates: Iterable[tuple[Point | None, T]], maximize: bool) -> tuple[Point, T] | None:
    """Return the candidate with the best point, of several that are equal the first; None where none has a point."""
    best: tuple[Point, T] | None = None
    for point, one in candidates:
        if point is not None and (best is None or better(point.value, best[0].value, maximize)):
            best = (point, one)
    return best
