"""What a curve says in one number: best, last, how far it has converged. Direction-aware; diverged values never
count as good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podium.curves.wire import diverged
from podium.domain.snapshot import Point


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


def has_diverged(curve: Sequence[Point]) -> bool:
    """The latest value is not a finite number."""
    return bool(curve) and diverged(curve[-1].value)


def pool_range(curves: Iterable[Sequence[Point]]) -> float:
    """The distance from the worst to the best finite value that any curve of the pool holds; 0 where there are
    fewer than two values.
    """
    lowest: float | None = None
    highest: float | None = None
    for curve in curves:
        for point in curve:
            if diverged(point.value):
                continue
            lowest = point.value if lowest is None else min(lowest, point.value)
            highest = point.value if highest is None else max(highest, point.value)
    return 0.0 if lowest is None or highest is None else highest - lowest


def first_value(curve: Sequence[Point]) -> float | None:
    return next((point.value for point in curve if not diverged(point.value)), None)


def pool_start(curves: Iterable[Sequence[Point]], maximize: bool) -> float | None:
    """The worst first value of a pool: the nearest thing to an untrained model's that the curves hold."""
    firsts = [first for curve in curves if (first := first_value(curve)) is not None]
    if not firsts:
        return None
    return min(firsts) if maximize else max(firsts)


def convergence(curve: Sequence[Point], maximize: bool, width: float, start: float | None = None) -> float:
    """(best - start) / width of the pool, from 0 to 1: how much of what anybody achieved this trial has gained.

    The start is the trial's own first value unless another is given.
    """
    first = first_value(curve) if start is None else start
    best = best_point(curve, maximize)
    if first is None or best is None or width <= 0.0:
        return 0.0
    # scaled before the subtraction: the difference of two huge values overflows
    gain = best.value / width - first / width
    return min(1.0, max(0.0, gain if maximize else -gain))
