"""Learning curve of one trial while its log is read: lines in, thinned curve out. Pure.

The agent's log follower uses it, and the operator for trials without a GPU. A `Curve` holds what is written to the
trial's status. A reader that restarts between two writes reads the same lines again and gets the same curve. A step may
be printed on one line and its value on a later one; the reader then restarts at the line of the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from podium_core.curves.additional_metrics import MetricSummary, update_summary
from podium_core.curves.non_finite import to_wire
from podium_core.curves.thinning import Grid, thin
from podium_core.domain.snapshot import Point
from podium_core.logs.line_reader import ParsedLine, Reader


class PrintedLine(Protocol):
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
class PendingStep:
    """Step that a line gave without a value. `lines`: number of lines read up to and including it."""

    step: float
    line: PrintedLine
    lines: int


@dataclass(frozen=True, slots=True)
class Curve:
    """Curve read so far, and what a reader needs to continue it.

    `diverged` counts points whose value was not finite. `repeated` counts points whose step was not new.
    """

    points: tuple[Point, ...] = ()
    last_step: float | None = None
    last_value: float | None = None
    lines: int = 0
    step_pending: PendingStep | None = None
    step_missing: bool = False  # The next line was read and counted before; only its step is needed.
    diverged: int = 0
    repeated: int = 0
    accepted: int = 0  # number of accepted points, before thinning
    current_step: float = 0.0  # The latest printed step. After a requeue it is below `last_step` for a while.
    awaiting_first_value: bool = False  # A new attempt has begun and no value of it was read yet.
    # Steps that this attempt repeats because it began below `current_step`: from an older checkpoint, or without one.
    repeated_steps: float = 0.0
    additional_metrics: tuple[MetricSummary, ...] = ()  # summaries of the job's additional metrics that were printed

    @property
    def attempt_step(self) -> float:
        """Step that this attempt has reached. A checkpoint may hold steps that were never printed."""
        return 0.0 if self.last_step is None else min(self.current_step, self.last_step)

    @property
    def awaited_step(self) -> PendingStep | None:
        """Step whose value is still to come; a restarted reader must begin with its line.

        It belongs to this attempt, which may repeat what an earlier one reported.
        """
        accepted = self.last_step is not None and not self.awaiting_first_value
        if self.step_pending is None or (accepted and self.step_pending.step <= self.current_step):
            return None
        return self.step_pending


def extend(curve: Curve, lines: Iterable[PrintedLine], read: Reader, grid: Grid) -> Curve:
    """Return the curve after these further lines."""
    new_points: list[Point] = []
    summaries = {one.metric: one for one in curve.additional_metrics}
    now = curve
    for line in lines:
        if now.step_missing:
            steps = [parsed.step for parsed in read(line.text) if parsed.step is not None and parsed.value is None]
            now = replace(
                now, step_missing=False, step_pending=PendingStep(steps[-1], line, now.lines) if steps else None
            )
            continue
        now = replace(now, lines=now.lines + 1)
        for parsed in read(line.text):
            step = parsed.step
            if parsed.value is not None:
                step = _next_step(now) if step is None else step
                now, point = _with_value(now, step, parsed.value, line, grid)
                new_points += point
            elif step is not None:
                now = replace(now, step_pending=PendingStep(step, line, now.lines))
            if now.step_pending is not None and now.awaited_step is None:
                # used up: a counter that starts again must not bring it back, since a restarted reader does not have it
                now = replace(now, step_pending=None)
            if parsed.additional:
                _record_additional(summaries, now, parsed, step)
    if summaries:
        now = replace(now, additional_metrics=tuple(summaries.values()))
    if not new_points:
        return now
    return replace(now, points=thin((*curve.points, *new_points), grid), accepted=now.accepted + len(new_points))


def _with_value(now: Curve, step: float, given: float, line: PrintedLine, grid: Grid) -> tuple[Curve, list[Point]]:
    """Return the curve after a value of the objective, and its point; no point if the step is not new."""
    if math.isfinite(step):
        now = replace(now, current_step=step, awaiting_first_value=False, repeated_steps=_repeated_steps(now, step))
    if not math.isfinite(step) or (now.last_step is not None and step <= now.last_step):
        return replace(now, repeated=now.repeated + 1), []
    value = to_wire(given, grid.maximize)
    diverged = now.diverged + (not math.isfinite(given))
    return replace(now, last_step=step, last_value=value, diverged=diverged), [Point(step, value, line.time)]


def _record_additional(summaries: dict[str, MetricSummary], now: Curve, parsed: ParsedLine, step: float | None) -> None:
    """Record values of additional metrics in `summaries`.

    `step` is the step of the objective on this line. Without one, and without a step printed beside the value, the
    pending step counts, or else the attempt's last step.
    """
    if step is None:
        step = now.awaited_step.step if now.awaited_step is not None else now.attempt_step
    for extra in parsed.additional:
        at = step if extra.step is None else extra.step
        summary = update_summary(summaries.get(extra.metric), extra.metric, at, extra.value)
        if summary is not None:
            summaries[extra.metric] = summary


def _repeated_steps(curve: Curve, step: float) -> float:
    """Return the steps that this attempt repeats: at most `current_step`, as a script may count its steps from 0."""
    if not curve.awaiting_first_value or curve.current_step <= 0.0 or step >= curve.current_step:
        return curve.repeated_steps
    return min(curve.current_step, curve.current_step - step + _spacing(curve.points))


def _spacing(points: Sequence[Point]) -> float:
    """Return the least distance between two kept values; thinning may have dropped closer ones.

    An attempt whose first printed step is 15 began after the value before step 15.
    """
    if len(points) > 1:
        return min(after.step - before.step for before, after in pairwise(points))
    return max((point.step for point in points), default=0.0) or 1.0


def _next_step(curve: Curve) -> float:
    """Return the step of a value without one: the pending step, else the attempt's next integer step."""
    if curve.awaited_step is not None:
        return curve.awaited_step.step
    return curve.attempt_step + 1.0
