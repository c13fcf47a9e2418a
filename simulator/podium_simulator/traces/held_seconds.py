"""Seconds for which a trial had held its GPUs at each point of its curve. Pure."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Protocol

TOLERANCE = (
    0.01  # share of the training that the record may lack, and of the usual time between two values that are separate
)


class TimedPoint(Protocol):
    """A point of a curve with the time at which it was printed."""

    @property
    def step(self) -> float: ...
    @property
    def time(self) -> float: ...


def held_seconds(
    points: Sequence[TimedPoint], allocations: Iterable[tuple[float, float]], trained: float
) -> tuple[float, ...]:
    """Return the seconds for which the trial had held its GPUs at each point, starts included.

    The last point gets all of `trained`. `allocations`: start and end of each. The times are spread evenly over the
    steps if they are not known. They are unknown in two cases:

    - The recorded allocations (the last 512 that have ended) do not add up to the training, because older ones are
      missing or work was repeated.
    - Values arrived together from a script that buffers its output.
    """
    pace = trained / points[-1].step if trained > 0.0 and points[-1].step > 0.0 else 1.0
    even = tuple(point.step * pace for point in points)
    ended = sorted(allocations)
    until = list(accumulate((end - start for start, end in ended), initial=0.0))  # total seconds after each allocation
    if not trained > 0.0 or abs(until[-1] - trained) > TOLERANCE * trained:
        return even
    held = []
    for point in points[:-1]:
        started = bisect(ended, (point.time, math.inf))
        rest = max(0.0, ended[started - 1][1] - point.time) if started else 0.0
        held.append((until[started] - rest) * trained / until[-1])
    measured = (*held, trained)
    gaps = zip(pairwise((0.0, *measured)), pairwise((0.0, *even)), strict=True)
    return measured if all(b - a >= TOLERANCE * (usual - last) for (a, b), (last, usual) in gaps) else even
