"""Thinning: keep a curve small in a way that a restart never changes.

The agent calls it for each batch of new points. At most LIMIT points remain, which bounds the cost of reading a whole
curve. These points are kept:

- the first point, the first one of a positive step, the best and the last;
- the last point of each cell of a geometric grid of steps.

The grid depends only on the first positive and the last step, and both are always kept. The cells of a coarser grid are
unions of those of a finer one. So thin(thin(c) + p) == thin(c + p) exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, count, pairwise
from operator import is_not

from podium_core.curves.best_value import best_point
from podium_core.curves.packed_curve import PackedCurve
from podium_core.domain.snapshot import Point

LIMIT = 256  # points of a curve
_EXTRAS = 5  # first, first positive, best, and the two cells at the ends of a range
_FINEST = 20  # cells per doubling as a power of two: finer than any written curve needs
_COARSEST = -10
_EARLY_GAPS = 8  # gaps at a curve's beginning, where cells are narrower than the distance of evaluations


@dataclass(frozen=True, slots=True)
class Grid:
    maximize: bool
    limit: int = LIMIT

    def __post_init__(self) -> None:
        if self.limit < 16:
            raise ValueError(f"limit: {self.limit} points are too few to keep a curve's shape; give at least 16")


def thin(points: Iterable[Point], grid: Grid) -> tuple[Point, ...]:
    """Return at most `grid.limit` points, strictly increasing in step. O(n).

    Points whose step is not above the one before (a step done again) are dropped.
    """
    curve = _increasing(points)
    if not curve:
        return ()
    keep = {0, len(curve) - 1}
    best = best_point(curve, grid.maximize)
    keep.update(i for i, point in enumerate(curve) if point is best)
    positive = next((i for i, point in enumerate(curve) if point.step > 0), None)
    if positive is not None:
        keep.add(positive)
        cells = _cells_per_doubling(curve[positive].step, curve[-1].step, grid.limit)
        last_of_cell = {math.floor(math.log2(curve[i].step) * cells): i for i in range(positive, len(curve))}
        keep.update(last_of_cell.values())
    return tuple(curve[i] for i in sorted(keep))


def common_prefix(before: Sequence[Point], now: Sequence[Point]) -> int:
    """Return the length of the common beginning of both curves. O(n).

    A curve that has grown and was thinned usually shares all points but the last one or two. A coarser grid or a new
    best may drop any point. It costs tenths of a microsecond per point, a fourth of `!=`, and less for identical
    objects.
    """
    if type(before) is type(now) is PackedCurve:  # `isinstance` is slow for a class with an abstract base
        size = min(len(before), len(now))
        differs = (before.array[:size] != now.array[:size]).any(axis=1)
        return int(differs.argmax()) if differs.any() else size
    same = next(compress(count(), map(is_not, before, now)), min(len(before), len(now)))
    for old, new in zip(before[same:], now[same:], strict=False):
        if old.step != new.step or old.value != new.value or old.time != new.time:
            break
        same += 1
    return same


def reached_at(curve: Sequence[Point], index: int, level: float) -> tuple[float, float]:
    """Return step and time of the first point at or above the step `level`.

    `curve[index]` is the first such point that was kept. If an earlier one was dropped, its step is estimated from the
    spacing and the fastest pace of the early points: it is the first step of its cell with an evaluation. Gaps up to
    1.5 times the longest early gap hide no point. O(1).
    """
    point = curve[index]
    first = next((p.step for p in curve[:2] if p.step > 0), 0.0)
    if not index or first <= 0.0 or not level > 0.0:
        return point.step, point.time
    before = curve[index - 1]
    early = curve[: _EARLY_GAPS + 1]
    gap = max(b.step - a.step for a, b in pairwise(early))
    cells = _cells_per_doubling(first, curve[-1].step, LIMIT)
    edge = 2.0 ** (math.floor(math.log2(point.step) * cells) / cells)
    step = before.step + gap * max(1, math.ceil((max(level, edge) - before.step) / gap - 1e-9))
    if step + gap / 2.0 > point.step:
        return point.step, point.time
    pace = min((b.time - a.time) / (b.step - a.step) for a, b in pairwise(early))
    return step, min(point.time, before.time + (step - before.step) * max(0.0, pace))


def estimated_evaluations(curve: Sequence[Point]) -> float:
    """Return the estimated number of evaluations so far, including thinned ones. O(1).

    It divides the last step by the distance of the first points, of which the very first may come much earlier.
    Infinite where there is no information.
    """
    early = curve[: _EARLY_GAPS + 1]
    if len(early) < 2:
        return 1.0 if early and early[0].step > 0.0 else math.inf
    evaluations = curve[-1].step * (len(early) - 1) / (early[-1].step - early[0].step)
    return evaluations if evaluations >= 1.0 else math.inf  # steps below 0


def _increasing(points: Iterable[Point]) -> list[Point]:
    kept: list[Point] = []
    for point in points:
        if math.isfinite(point.step) and (not kept or point.step > kept[-1].step):
            kept.append(point)
    return kept


def _cells_per_doubling(first: float, last: float, limit: int) -> float:
    """Return the finest power of two for which the whole range needs no more than the allowed cells."""
    doublings = math.log2(last) - math.log2(first)
    available = limit - _EXTRAS
    for power in range(_FINEST, _COARSEST, -1):
        if doublings * 2.0**power <= available - 1:
            return float(2.0**power)
    return float(2.0**_COARSEST)
