"""Drawing of a population's lineage: a line for each trial over its steps, and from which trial each child began.

A child follows its parent's family in the drawing. Colours are those of the other charts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from podium_views import charts, formatting, svg
from podium_views.model import JobReport, ReportMetric
from podium_views.svg import element
from podium_views.trial_row import TrialRow

MAX_ROWS = 200  # trials that are drawn: the families of the lowest numbers
ROW = 17.0


def lineage(report: JobReport) -> Markup:
    """Draw the lineage; empty if no trial has a parent."""
    if not any(row.parent for row in report.trials):
        return charts.NONE
    rows = _families([row for row in report.trials if row.curve])[:MAX_ROWS]
    height = charts.TOP + ROW * len(rows) + charts.BOTTOM
    place = {row.name: charts.TOP + ROW * (number + 0.5) for number, row in enumerate(rows)}
    left = charts.LEFT + 7.0 * min(max(len(row.name) for row in rows), 16)
    x = svg.Scale(0.0, max(row.curve[-1][0] for row in rows), left, charts.WIDTH - charts.RIGHT)
    parts = charts.grid_x(x, x.ticks(8), height, report.metric.step_key)
    for row in rows:
        parts += _row(report.metric, row, x, place)
    steps = report.metric.step_key
    label = f"Lineage of {formatting.count(len(rows), 'trial')}: which trial continued from which, by {steps}"
    return svg.drawing(charts.WIDTH, height, label, *parts)


def _row(metric: ReportMetric, row: TrialRow, x: svg.Scale, place: dict[str, float]) -> Iterator[Markup]:
    at, end, parent = place[row.name], x(row.curve[-1][0]), row.parent
    begin = x(0.0) if parent is None else x(parent.step)
    about = f"{row.name} ({row.phase}): best {metric.name} {formatting.number(row.best)}"
    if parent is not None:
        step = formatting.step(parent.step)
        about += f" | generation {parent.generation}, child of {parent.name} at {metric.step_key} {step}"
    about += f" | {formatting.parameters(dict(row.parameters))}"
    parts = [svg.title(about)]
    above = None if parent is None else place.get(parent.name)
    if above is not None:
        parts.append(svg.path([(begin, above), (begin, at)], class_="target"))
    parts += [
        svg.path([(begin, at), (end, at)], class_="hit"),
        svg.path([(begin, at), (end, at)], class_=f"curve l{row.level}"),
        element("circle", cx=end, cy=at, r=4 if row.level == 0 else 2.5, class_=f"dot l{row.level}"),
    ]
    yield svg.text(x.begin - 8, at + 4, row.name[-16:], class_="tick end")
    yield element("g", *parts, class_="series")


def _families(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """Return the trials with each child below its parent; a child of a trial without a curve begins a family."""
    names = {row.name for row in rows}
    below: dict[str, list[TrialRow]] = {}
    for row in sorted(rows, key=lambda one: one.number):
        parent = "" if row.parent is None else row.parent.name
        below.setdefault(parent if parent in names else "", []).append(row)
    ordered: list[TrialRow] = []
    rest = below.get("", [])[::-1]
    while rest:
        row = rest.pop()
        ordered.append(row)
        rest += below.pop(row.name, [])[::-1]
    return ordered
