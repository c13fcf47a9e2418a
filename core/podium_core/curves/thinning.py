"""Keep a curve small for ever, without a restart ever changing what is kept.

Called by the agent for each batch of new points. At most LIMIT of them stay, which bounds what "the whole curve" costs
whoever reads it. The kept points are: the first, the first of a positive step, the best, the last, and the last point
of each cell of a geometric grid of steps. The grid is a function of the first positive and the last step alone, which
are always kept, and a coarser grid's cells are unions of a finer one's; so thin(thin(c) + p) == thin(c + p) exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, count, pairwise
from operator import is_not

from podium_core.curves.best_value import best_point
from podium_core.domain.snapshot import Point

LIMIT = 256  # points of a curve
_EXTRAS = 5  # first, first positive, best, and the two cells that a range may touch at its ends
_FINEST = 20  # cells per doubling, as a power of two: beyond any curve that is written down
_COARSEST = -10
_EARLY = 8  # gaps of a curve's beginning, where cells are narrower than evaluations are apart


@dataclass(frozen=True, slots=True)
class Grid:
    maximize: bool
    limit: int = LIMIT

    def __post_init__(self) -> None:
        if self.limit < 16:
            raise ValueError(f"limit: {self.limit} points are too few to keep a curve's shape; give at least 16")


def thin(points: Iterable[Point], grid: Grid) -> tuple[Point, ...]:
    """At most `grid.limit` points, strictly increasing in step; points that go back (a step done again) are
    dropped. O(n).
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


def same_until(before: Sequence[Point], now: Sequence[Point]) -> int:
    """How many points both begin with: of a curve that has grown and was thinned all up to the last but one, mostly,
    though a coarser grid or a new best may drop any. O(n): tenths of a microsecond a point, which is a fourth of what
    `!=` takes, and less where they are the same objects.
    """
    same = next(compress(count(), map(is_not, before, now)), min(len(before), len(now)))
    for old, new in zip(before[same:], now[same:], strict=False):
        if old.step != new.step or old.value != new.value or old.time != new.time:
            break
        same += 1
    return same


def came_at(curve: Sequence[Point], place: int, level: float) -> tuple[float, float]:
    """Step and time of the first point on or above the step `level`, of which `curve[place]` is the first that was
    kept. Where an earlier one is gone, it is put on the first step of its cell on which there was an evaluation, if
    they are as far apart as early ones, at the fastest early pace. Gaps that are up to half as long again as the
    longest early one hide nothing. O(1).
    """
    point = curve[place]
    first = next((p.step for p in curve[:2] if p.step > 0), 0.0)
    if not place or first <= 0.0 or not level > 0.0:
        return point.step, point.time
    before = curve[place - 1]
    early = curve[: _EARLY + 1]
    gap = max(b.step - a.step for a, b in pairwise(early))
    cells = _cells_per_doubling(first, curve[-1].step, LIMIT)
    edge = 2.0 ** (math.floor(math.log2(point.step) * cells) / cells)
    step = before.step + gap * max(1, math.ceil((max(level, edge) - before.step) / gap - 1e-9))
    if step + gap / 2.0 > point.step:
        return point.step, point.time
    pace = min((b.time - a.time) / (b.step - a.step) for a, b in pairwise(early))
    return step, min(point.time, before.time + (step - before.step) * max(0.0, pace))


def evaluations(curve: Sequence[Point]) -> float:
    """As how many its training counts, with those that were thinned: by how far apart the first are, of which the very
    first may come much earlier. Infinite where nothing is told. O(1).
    """
    early = curve[: _EARLY + 1]
    if len(early) < 2:
        return 1.0 if early and early[0].step > 0.0 else math.inf
    found = curve[-1].step * (len(early) - 1) / (early[-1].step - early[0].step)
    return found if found >= 1.0 else math.inf  # steps below 0


def _increasing(points: Iterable[Point]) -> list[Point]:
    kept: list[Point] = []
    for point in points:
        if math.isfinite(point.step) and (not kept or point.step > kept[-1].step):
            kept.append(point)
    return kept


def _cells_per_doubling(first: float, last: float, limit: int) -> float:
    """The finest power of two for which the whole range needs no more cells than there is room."""
    doublings = math.log2(last) - math.log2(first)
    room = limit - _EXTRAS
    for power in range(_FINEST, _COARSEST, -1):
        if doublings * 2.0**power <= room - 1:
            return float(2.0**power)
    return float(2.0**_COARSEST)
