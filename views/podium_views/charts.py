"""SVG drawings of a report. Colours are classes (l0 best to l5 worst), so that a dark theme can change them."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from podium_core.curves.non_finite import diverged
from podium_views import formatting, svg
from podium_views.model import AllocationBar, Axis, Improvement, JobReport, Lane, ReportMetric, category
from podium_views.svg import element
from podium_views.trial_row import TrialRow

NONE = Markup("")
WIDTH = 760.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 16.0, 12.0, 40.0


def curves(report: JobReport) -> Markup:
    """Draw all learning curves in one chart; the best is drawn last with a thick line."""
    drawn = [line for line in report.trials if line.curve]
    if not drawn:
        return NONE
    height, metric = 340.0, report.metric
    steps = [step for line in drawn for step, _ in line.curve]
    low, high = svg.value_range([value for line in drawn for _, value in line.curve], _target(metric))
    x = svg.Scale(min(steps), max(steps), LEFT, WIDTH - RIGHT)
    y = svg.Scale(low, high, height - BOTTOM, TOP)
    parts = [*grid_y(y, metric.name), *grid_x(x, x.ticks(8), height, metric.step_key), *_target_line(metric, y)]
    worst_first = sorted(drawn, key=lambda line: -line.level)
    parts += [_curve(metric, line, x, y) for line in worst_first]
    label = f"Learning curves of {formatting.count(len(drawn), 'trial')}: {metric.name} by {metric.step_key}"
    return svg.drawing(WIDTH, height, label, *parts)


def _curve(metric: ReportMetric, line: TrialRow, x: svg.Scale, y: svg.Scale) -> Markup:
    points = [(x(step), y(value)) for step, value in line.curve]
    about = f"{line.name} ({line.phase}): best {metric.name} {formatting.number(line.best)}"
    about += f" at {metric.step_key} {formatting.step(line.best_step)} | {formatting.parameters(dict(line.parameters))}"
    last_x, last_y = points[-1]
    return element(
        "g",
        svg.title(about),
        svg.path(points, class_="hit"),
        svg.path(points, class_=f"curve l{line.level}"),
        element("circle", cx=last_x, cy=last_y, r=4 if line.level == 0 else 2.5, class_=f"dot l{line.level}"),
        class_="series",
    )


def gantt(report: JobReport) -> Markup:
    """Draw the holder of each GPU over time."""
    return lanes(report.lanes, report.period.span)


def lanes(given: Sequence[Lane], span: float, lane_height: float = 44.0) -> Markup:
    """Draw a lane for each GPU and a bar for each GPU allocation; `span` is the number of seconds to draw."""
    if not given:
        return NONE
    left = 96.0
    height = TOP + lane_height * len(given) + BOTTOM
    x = svg.Scale(0.0, span, left, WIDTH - RIGHT)
    parts = time_grid(x, span, height)
    for place, lane in enumerate(given):
        top = TOP + place * lane_height
        parts.append(
            element("rect", x=left, y=top + 4, width=WIDTH - RIGHT - left, height=lane_height - 8, class_="lane")
        )
        parts.append(svg.text(left - 8, top + lane_height / 2 + 4, lane.gpu, class_="label end"))
        parts += [_bar(allocation, x, top + 4, lane_height - 8) for allocation in lane.allocations]
    bars = formatting.count(sum(len(lane.allocations) for lane in given), "allocation")
    label = f"Holder of each GPU over time: {bars} on {formatting.count(len(given), 'GPU')}"
    return svg.drawing(WIDTH, height, label, *parts)


def _bar(allocation: AllocationBar, x: svg.Scale, top: float, height: float) -> Markup:
    begin, end = x(allocation.start), x(allocation.end)
    width = max(end - begin, 0.75)
    name = str(allocation.number)
    lasted = formatting.duration(allocation.end - allocation.start) + (" and continues" if allocation.lasting else "")
    span = f"from {formatting.duration(allocation.start)} to {formatting.duration(allocation.end)}"
    parts = [
        svg.title(f"{allocation.trial} held it for {lasted}, {span}"),
        element("rect", x=begin, y=top, width=width, height=height, class_=f"bar l{allocation.level}"),
    ]
    if width > 7 * len(name) + 4:
        parts.append(svg.text(begin + width / 2, top + height / 2 + 4, name, class_=f"on l{allocation.level}"))
    return element("g", *parts, class_="series")


def best_so_far(report: JobReport) -> Markup:
    """Draw the best value so far over time as a step function."""
    if not report.improvements:
        return NONE
    height, metric, span = 240.0, report.metric, report.period.span
    low, high = svg.value_range([improvement.value for improvement in report.improvements], _target(metric))
    x = svg.Scale(0.0, span, LEFT, WIDTH - RIGHT)
    y = svg.Scale(low, high, height - BOTTOM, TOP)
    points: list[tuple[float, float]] = []
    for improvement in report.improvements:
        if points:
            points.append((x(improvement.time), points[-1][1]))
        points.append((x(improvement.time), y(improvement.value)))
    points.append((x(span), points[-1][1]))
    marks = [
        element(
            "circle",
            svg.title(_improvement_text(metric, improvement)),
            cx=x(improvement.time),
            cy=y(improvement.value),
            r=3,
            class_="dot l0",
        )
        for improvement in report.improvements
    ]
    parts = [*grid_y(y, metric.name), *time_grid(x, span, height), *_target_line(metric, y)]
    line = svg.path(points, class_="curve l0")
    return svg.drawing(WIDTH, height, f"Best {metric.name} by time", *parts, line, *marks)


def _improvement_text(metric: ReportMetric, improvement: Improvement) -> str:
    value, time = formatting.number(improvement.value), formatting.duration(improvement.time)
    return f"{metric.name} {value} by {improvement.trial} at {time}"


def scatters(report: JobReport) -> list[tuple[str, Markup]]:
    """Draw each parameter against the best values of the trials; return pairs of name and SVG."""
    measured = [line for line in report.trials if line.best is not None and not diverged(line.best)]
    if not measured:
        return []
    drawings = [(axis.name, _scatter(report.metric, axis, measured)) for axis in report.axes]
    return [(name, drawing) for name, drawing in drawings if drawing]


def _scatter(metric: ReportMetric, axis: Axis, lines: Sequence[TrialRow]) -> Markup:
    width, height, left = 260.0, 190.0, 46.0
    placed = [(line, dict(line.parameters).get(axis.name)) for line in lines]
    low, high = svg.value_range([line.best for line, _ in placed if line.best is not None])
    y = svg.Scale(low, high, height - BOTTOM, TOP)
    marks: list[tuple[TrialRow, float]] = []
    ticks: list[tuple[float, str]] = []
    if axis.categories:
        step = (width - RIGHT - left) / len(axis.categories)
        centre = {name: left + step * (place + 0.5) for place, name in enumerate(axis.categories)}
        ticks = [(at, name) for name, at in centre.items()]
        for line, value in placed:
            if value is not None and category(value) in centre:
                jitter = ((line.number * 7) % 11 - 5) / 11 * step * 0.5  # deterministic jitter
                marks.append((line, centre[category(value)] + jitter))
    else:
        numbers = [(line, float(value)) for line, value in placed if isinstance(value, int | float)]
        numbers = [(line, value) for line, value in numbers if value > 0 or not axis.log]
        if not numbers:
            return NONE
        values = [value for _, value in numbers]
        x = svg.Scale(min(values), max(values), left + 8, width - RIGHT - 8, log=axis.log)
        ticks = [(x(tick), formatting.number(tick, 3)) for tick in x.ticks(4)]
        marks = [(line, x(value)) for line, value in numbers]
    parts = grid_y(y, "", right=width - RIGHT, left=left, count=4)
    parts += [svg.text(at, height - BOTTOM + 16, _short(name), class_="tick middle") for at, name in ticks]
    for line, at in sorted(marks, key=lambda mark: -mark[0].level):
        about = svg.title(
            f"{line.name}: {axis.name}={dict(line.parameters)[axis.name]} gave {formatting.number(line.best)}"
        )
        radius = 5.5 if line.level == 0 else 4
        parts.append(element("circle", about, cx=at, cy=y(line.best or 0.0), r=radius, class_=f"dot l{line.level}"))
    parts.append(
        svg.text(
            (left + width - RIGHT) / 2, height - 6, axis.name + (" (log)" if axis.log else ""), class_="axis middle"
        )
    )
    return svg.drawing(width, height, f"{metric.name} by {axis.name}", *parts)


def _short(name: str) -> str:
    return name if len(name) <= 12 else name[:11] + "…"


def _target(metric: ReportMetric) -> list[float]:
    return [] if metric.target is None else [metric.target]


def _target_line(metric: ReportMetric, y: svg.Scale) -> list[Markup]:
    if metric.target is None:
        return []
    at = y(metric.target)
    return [
        element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="target"),
        svg.text(WIDTH - RIGHT, at - 5, f"target {formatting.number(metric.target)}", class_="tick end"),
    ]


def grid_y(
    y: svg.Scale, name: str, *, left: float = LEFT, right: float = WIDTH - RIGHT, count: int = 5
) -> list[Markup]:
    """Return the horizontal grid lines with their values and the name of the axis."""
    parts: list[Markup] = []
    for tick in y.ticks(count):
        parts.append(element("line", x1=left, x2=right, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(svg.text(left - 7, y(tick) + 4, formatting.number(tick), class_="tick end"))
    if name:
        middle = (y.begin + y.end) / 2
        parts.append(svg.text(0, 0, name, transform=f"translate(13 {middle:.1f}) rotate(-90)", class_="axis middle"))
    return parts


def grid_x(x: svg.Scale, marks: Sequence[float], height: float, name: str) -> list[Markup]:
    """Return the values below the x axis and its name."""
    parts = [svg.text(x(mark), height - BOTTOM + 17, formatting.number(mark), class_="tick middle") for mark in marks]
    return [*parts, svg.text((x.begin + x.end) / 2, height - 5, name, class_="axis middle")]


def time_grid(x: svg.Scale, span: float, height: float) -> list[Markup]:
    """Return the vertical grid lines of a time axis."""
    parts: list[Markup] = []
    for mark in svg.time_ticks(span):
        parts.append(element("line", x1=x(mark), x2=x(mark), y1=TOP, y2=height - BOTTOM, class_="grid"))
        parts.append(svg.text(x(mark), height - BOTTOM + 17, _clock(mark, span), class_="tick middle"))
    name = "time since the start" + (" (h:mm)" if span >= 3600 else " (m:ss)")
    return [*parts, svg.text((x.begin + x.end) / 2, height - 5, name, class_="axis middle")]


def _clock(seconds: float, span: float) -> str:
    whole = int(seconds)
    if span >= 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02d}"
    return f"{whole // 60}:{whole % 60:02d}"
