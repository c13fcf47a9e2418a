"""One trial's learning curve as its log is read: lines in, thinned curve out. Pure.

Used by the agent's log follower and by the operator for trials without a GPU. What a `Curve` holds is what is written
to the trial's status: a reader that dies between two patches reads the same lines again and arrives at the same curve.
A step may be printed on one line and its value on a later one: then it begins again at the first of the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from podium_core.curves.additional_metrics import Observed, observe
from podium_core.curves.line_readers import Reader, Seen
from podium_core.curves.non_finite import to_wire
from podium_core.curves.thinning import Grid, thin
from podium_core.domain.snapshot import Point


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
class Announcement:
    """A step that a line gave without a value. `lines` were read up to this line, and with it."""

    step: float
    line: Printed
    lines: int


@dataclass(frozen=True, slots=True)
class Curve:
    """`diverged` counts points whose value was not a number, `repeated` those whose step had been seen already."""

    points: tuple[Point, ...] = ()
    last_step: float | None = None
    last_value: float | None = None
    lines: int = 0
    announced: Announcement | None = None
    again: bool = False  # the next line was read and counted before: only what it announced is missing
    diverged: int = 0
    repeated: int = 0
    taken: int = 0  # points, before thinning
    at: float = 0.0  # the step printed last, seen before or not: after a requeue it is behind `last_step` for a while
    first: bool = False  # a new attempt, of which no value was read yet
    back: float = 0.0  # steps that this attempt does again because it began before `at`: from an older save, or none
    observed: tuple[Observed, ...] = ()  # the job's additional metrics, as far as they were printed

    @property
    def here(self) -> float:
        """The step at which this attempt is. A save may be of steps that nobody printed."""
        return 0.0 if self.last_step is None else min(self.at, self.last_step)

    @property
    def waiting(self) -> Announcement | None:
        """The announcement whose value is still to come: a reader that starts anew must begin with its line. It is of
        this attempt, which may do again what an earlier one has shown.
        """
        taken = self.last_step is not None and not self.first
        if self.announced is None or (taken and self.announced.step <= self.at):
            return None
        return self.announced


def extend(curve: Curve, lines: Iterable[Printed], read: Reader, grid: Grid) -> Curve:
    """The curve after these further lines."""
    fresh: list[Point] = []
    observed = {one.metric: one for one in curve.observed}
    now = curve
    for line in lines:
        if now.again:
            steps = [seen.step for seen in read(line.text) if seen.step is not None and seen.value is None]
            now = replace(now, again=False, announced=Announcement(steps[-1], line, now.lines) if steps else None)
            continue
        now = replace(now, lines=now.lines + 1)
        for seen in read(line.text):
            step = seen.step
            if seen.value is not None:
                step = _next_step(now) if step is None else step
                now, point = _valued(now, step, seen.value, line, grid)
                fresh += point
            elif step is not None:
                now = replace(now, announced=Announcement(step, line, now.lines))
            if seen.others:
                _beside(observed, now, seen, step)
    if observed:
        now = replace(now, observed=tuple(observed.values()))
    if not fresh:
        return now
    return replace(now, points=thin((*curve.points, *fresh), grid), taken=now.taken + len(fresh))


def _valued(now: Curve, step: float, given: float, line: Printed, grid: Grid) -> tuple[Curve, list[Point]]:
    """The curve after a value of the objective, and the point that it is: none where its step was seen before."""
    if math.isfinite(step):
        now = replace(now, at=step, first=False, back=_back(now, step))
    if not math.isfinite(step) or (now.last_step is not None and step <= now.last_step):
        return replace(now, repeated=now.repeated + 1), []
    value = to_wire(given, grid.maximize)
    diverged = now.diverged + (not math.isfinite(given))
    return replace(now, last_step=step, last_value=value, diverged=diverged), [Point(step, value, line.time)]


def _beside(observed: dict[str, Observed], now: Curve, seen: Seen, step: float | None) -> None:
    """Note values of additional metrics in `observed`. `step`: that of the objective on this line; where there is none,
    and none was printed with a value itself, it is the one announced before, or else this attempt's last.
    """
    if step is None:
        step = now.waiting.step if now.waiting is not None else now.here
    for other in seen.others:
        at = step if other.step is None else other.step
        found = observe(observed.get(other.metric), other.metric, at, other.value)
        if found is not None:
            observed[other.metric] = found


def _back(curve: Curve, step: float) -> float:
    """At most all that there was to go on from: a script may count its steps from 0, or from below it."""
    if not curve.first or curve.at <= 0.0 or step >= curve.at:
        return curve.back
    return min(curve.at, curve.at - step + _spacing(curve.points))


def _spacing(points: Sequence[Point]) -> float:
    """Between two values, as far as a thinned curve knows: who prints step 15 first has begun after the one before."""
    if len(points) > 1:
        return min(after.step - before.step for before, after in pairwise(points))
    return max((point.step for point in points), default=0.0) or 1.0


def _next_step(curve: Curve) -> float:
    """The step of a value without one: the one announced before it, else the next number of this attempt."""
    if curve.waiting is not None:
        return curve.waiting.step
    return curve.here + 1.0
