"""Drawing of two objectives: every trial as a point, and the Pareto front as steps through its trials."""

from __future__ import annotations

from itertools import pairwise

from markupsafe import Markup

from podium_cli.report import svg
from podium_cli.report.charts import BOTTOM, LEFT, NONE, RIGHT, TOP, WIDTH, grid_x, grid_y
from podium_cli.report.model import JobReport
from podium_cli.report.svg import element
from podium_cli.views import formatting
from podium_core.objectives.front import Candidate


def front(report: JobReport) -> Markup:
    """Draw the trials of a job with two objectives; nothing with another number, or without values."""
    if len(report.objective_names) != 2 or not report.candidates:
        return NONE
    height = 340.0
    first, second = report.objective_names
    low_x, high_x = svg.value_range([one.values[0] for one in report.candidates])
    low_y, high_y = svg.value_range([one.values[1] for one in report.candidates])
    x = svg.Scale(low_x, high_x, LEFT, WIDTH - RIGHT)
    y = svg.Scale(low_y, high_y, height - BOTTOM, TOP)
    inside = {one.trial for one in report.front}
    marks = sorted(report.candidates, key=lambda one: one.name in inside)  # the front is drawn last
    line = steps([(x(one.values[0]), y(one.values[1])) for one in report.front])
    label = f"{formatting.count(len(marks), 'trial')} by {first} and {second}; {len(inside)} in the Pareto front"
    return svg.drawing(
        WIDTH,
        height,
        label,
        *grid_y(y, second),
        *grid_x(x, x.ticks(8), height, first),
        svg.path(line, class_="curve l0") if len(line) > 1 else NONE,
        *(_mark(report, one, x, y, inside=one.name in inside) for one in marks),
    )


def steps(front: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the border of what the front dominates: between two neighbours, the worse coordinate of each."""
    corners = [(after[0], before[1]) for before, after in pairwise(front)]
    return [*front[:1], *(point for pair in zip(corners, front[1:], strict=True) for point in pair)]


def _mark(report: JobReport, one: Candidate, x: svg.Scale, y: svg.Scale, *, inside: bool) -> Markup:
    named = zip(report.objective_names, one.values, strict=True)
    about = ", ".join(f"{name} {formatting.number(value)}" for name, value in named)
    return element(
        "circle",
        svg.title(f"{one.name}: {about}"),
        cx=x(one.values[0]),
        cy=y(one.values[1]),
        r=5.5 if inside else 4,
        class_="dot l0" if inside else "dot l4",
    )
