"""Drawing of two objectives: every trial as a point, and the Pareto front as steps through its trials."""

from __future__ import annotations

from itertools import pairwise

from markupsafe import Markup

from podium_core.objectives.front import Candidate
from podium_views import formatting, svg
from podium_views.charts import BOTTOM, LEFT, NONE, RIGHT, TOP, WIDTH, grid_x, grid_y
from podium_views.model import SeveralObjectives
from podium_views.svg import element


def front(several: SeveralObjectives | None) -> Markup:
    """Draw the trials of a job with two objectives; nothing with another number, or without values."""
    if several is None or len(several.names) != 2 or not several.candidates:
        return NONE
    height = 340.0
    first, second = several.names
    x = svg.Scale(*_range(several, 0), LEFT, WIDTH - RIGHT)
    y = svg.Scale(*_range(several, 1), height - BOTTOM, TOP)
    inside = {one.trial for one in several.front}
    marks = sorted(several.candidates, key=lambda one: one.name in inside)  # the front is drawn last
    line = steps([(x(one.values[0]), y(one.values[1])) for one in several.front])
    label = f"{formatting.count(len(marks), 'trial')} by {first} and {second}; {len(inside)} in the Pareto front"
    return svg.drawing(
        WIDTH,
        height,
        label,
        *grid_y(y, second),
        *grid_x(x, x.ticks(8), height, first),
        svg.path(line, class_="curve l0") if len(line) > 1 else NONE,
        *(_mark(several, one, x, y, inside=one.name in inside) for one in marks),
    )


def _range(several: SeveralObjectives, place: int) -> tuple[float, float]:
    """Return the range of one objective: the whole front, and the other trials without outliers."""
    inside = [one.values[place] for one in several.front]
    return svg.value_range([one.values[place] for one in several.candidates], inside)


def steps(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the border of what the front dominates: its corners have the worse values of two neighbours."""
    corners = [(after[0], before[1]) for before, after in pairwise(points)]
    return [*points[:1], *(point for pair in zip(corners, points[1:], strict=True) for point in pair)]


def _mark(several: SeveralObjectives, one: Candidate, x: svg.Scale, y: svg.Scale, *, inside: bool) -> Markup:
    """Return the point of a trial; an outlier is drawn at the edge."""
    named = zip(several.names, one.values, strict=True)
    about = ", ".join(f"{name} {formatting.number(value)}" for name, value in named)
    return element(
        "circle",
        svg.title(f"{one.name}: {about}"),
        cx=x(one.values[0]),
        cy=y(one.values[1]),
        r=5.5 if inside else 4,
        class_="dot l0" if inside else "dot l4",
    )
