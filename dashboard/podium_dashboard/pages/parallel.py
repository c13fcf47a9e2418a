"""Drawing of parallel coordinates: an axis for each parameter and one for the objective, a line for each trial."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup

from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Scalar
from podium_views import charts, formatting, svg
from podium_views.model import Axis, JobReport, ReportMetric, category
from podium_views.svg import element
from podium_views.trial_row import TrialRow

HEIGHT, TOP, BOTTOM, SIDE = 300.0, 40.0, 24.0, 70.0
MAX_AXES = 12
Place = Callable[[TrialRow], float | None]  # height of a trial on an axis


def parallel_coordinates(report: JobReport) -> Markup:
    """Draw the trials that have a value; nothing without a parameter or with fewer than two such trials."""
    rows = [row for row in report.trials if row.best is not None and not diverged(row.best)]
    axes = report.axes[:MAX_AXES]
    if not axes or len(rows) < 2:
        return charts.NONE
    gap = (charts.WIDTH - 2 * SIDE) / len(axes)
    parts: list[Markup] = []
    texts: list[Markup] = []  # above the lines
    places: list[tuple[float, Place]] = []
    for number, axis in enumerate(axes):
        x = SIDE + gap * number
        place, marks = _parameter(axis, rows)
        places.append((x, place))
        parts.append(_axis(x))
        texts += _texts(x, axis.name + (" (log)" if axis.log else ""), marks)
    low, high = svg.value_range([row.best for row in rows if row.best is not None])
    scale = svg.Scale(low, high, HEIGHT - BOTTOM, TOP)
    last = charts.WIDTH - SIDE
    parts.append(_axis(last))
    texts += _texts(
        last, f"best {report.metric.name}", [(scale(one), formatting.number(one)) for one in scale.ticks(5)]
    )
    places.append((last, lambda row: None if row.best is None else scale(row.best)))
    lines = [_line(report.metric, row, places) for row in sorted(rows, key=lambda row: -row.level)]
    label = f"Parameters and best {report.metric.name} of {formatting.count(len(rows), 'trial')}"
    return svg.drawing(charts.WIDTH, HEIGHT, label, *parts, *lines, *texts)


def _line(metric: ReportMetric, row: TrialRow, places: list[tuple[float, Place]]) -> Markup:
    points = [(x, y) for x, y in ((x, place(row)) for x, place in places) if y is not None]
    about = f"{row.name}: best {metric.name} {formatting.number(row.best)} | "
    about += formatting.parameters(dict(row.parameters))
    return element(
        "g",
        svg.title(about),
        svg.path(points, class_="hit"),
        svg.path(points, class_=f"curve l{row.level}"),
        class_="series",
    )


def _axis(x: float) -> Markup:
    return element("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="grid")


def _texts(x: float, name: str, marks: list[tuple[float, str]]) -> list[Markup]:
    head = svg.text(x, TOP - 18, name if len(name) <= 18 else name[:17] + "…", class_="label middle")
    return [head, *(svg.text(x - 6, y + 4, text[:12], class_="tick end halo") for y, text in marks)]


def _parameter(axis: Axis, rows: list[TrialRow]) -> tuple[Place, list[tuple[float, str]]]:
    """Return where a trial lies on the axis of a parameter, and the marks of the axis."""

    def given(row: TrialRow) -> Scalar | None:
        return dict(row.parameters).get(axis.name)

    if axis.categories:
        step = (HEIGHT - BOTTOM - TOP) / len(axis.categories)
        heights = {name: HEIGHT - BOTTOM - step * (place + 0.5) for place, name in enumerate(axis.categories)}

        def of_category(row: TrialRow) -> float | None:
            value = given(row)
            return None if value is None else heights.get(category(value))

        return of_category, [(y, name) for name, y in list(heights.items())[:20]]
    numbers = [float(value) for value in map(given, rows) if isinstance(value, int | float)]
    numbers = [value for value in numbers if value > 0 or not axis.log]
    if not numbers:
        return lambda row: None, []
    scale = svg.Scale(min(numbers), max(numbers), HEIGHT - BOTTOM, TOP, log=axis.log)

    def of_number(row: TrialRow) -> float | None:
        value = given(row)
        known = isinstance(value, int | float) and (value > 0 or not axis.log)
        return scale(float(value)) if known and value is not None else None

    return of_number, [(scale(one), formatting.number(one, 3)) for one in scale.ticks(5)]
