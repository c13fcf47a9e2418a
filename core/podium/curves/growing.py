"""One trial's learning curve as its log is read: lines in, thinned curve out. Pure.

Used by the agent's log follower and by the operator for trials without a GPU. What a `Curve` holds is what is written
to the trial's status: a reader that dies between two patches reads the same lines again and arrives at the same curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from podium.curves.readings import Reader
from podium.curves.thinning import Grid, thin
from podium.curves.wire import to_wire
from podium.domain.snapshot import Point


class Printed(Protocol):
    """A line that a trial printed, and when."""

    @property
    def time(self) -> float: ...
    @property
    def text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Line:
    time: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """`diverged` counts points whose value was not a number, `repeated` those whose step had been seen already."""

    points: tuple[Point, ...] = ()
    last_step: float | None = None
    last_value: float | None = None
    lines: int = 0
    announced: float | None = None  # a step that a line gave without a value
    diverged: int = 0
    repeated: int = 0
    taken: int = 0  # points, before thinning


def extend(curve: Curve, lines: Iterable[Printed], read: Reader, grid: Grid) -> Curve:
    """The curve after these further lines."""
    fresh: list[Point] = []
    now = curve
    for line in lines:
        now = replace(now, lines=now.lines + 1)
        for seen in read(line.text):
            if seen.value is None:
                now = replace(now, announced=seen.step)
                continue
            step = seen.step if seen.step is not None else _next_step(now)
            if not math.isfinite(step) or (now.last_step is not None and step <= now.last_step):
                now = replace(now, repeated=now.repeated + 1)
                continue
            value = to_wire(seen.value, grid.maximize)
            diverged = now.diverged + (not math.isfinite(seen.value))
            now = replace(now, last_step=step, last_value=value, diverged=diverged)
            fresh.append(Point(step, value, line.time))
    if not fresh:
        return now
    return replace(now, points=thin((*curve.points, *fresh), grid), taken=now.taken + len(fresh))


def _next_step(curve: Curve) -> float:
    """The step of a value without one: the one announced before it, else the next number."""
    if curve.announced is not None and (curve.last_step is None or curve.announced > curve.last_step):
        return curve.announced
    return 1.0 if curve.last_step is None else curve.last_step + 1.0
