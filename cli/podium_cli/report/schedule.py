"""Page of `podium optimise`: a Gantt chart of one schedule.

The optimisers may not be installed, so only the type checker imports their types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from podium_cli.views import optimise as optimise_view
from podium_views import formatting, svg
from podium_views.template import render as render_template

if TYPE_CHECKING:
    from podium_optimisers.makespan.instance import MakespanInstance
    from podium_optimisers.makespan.schedule import MakespanSchedule

WIDTH, LEFT, RIGHT, TOP, BOTTOM, LANE = 1040.0, 64.0, 16.0, 12.0, 40.0, 20.0
CPU, GPU = "l2", "l0"  # colours of page.css


@dataclass(frozen=True, slots=True)
class _TaskBar:
    """One task: where its machine ran it, and when."""

    name: str
    machine: str
    start: float
    seconds: float
    colour: str


def render(instance: MakespanInstance, schedule: MakespanSchedule) -> str:
    """Return one HTML file without scripts, links or external fonts."""
    return render_template(
        "podium_cli.report",
        "schedule.html.j2",
        method=schedule.method,
        summary=optimise_view.summary(instance, schedule),
        gantt=_gantt(instance, schedule),
    )


def _gantt(instance: MakespanInstance, schedule: MakespanSchedule) -> Markup:
    """Draw a lane for each machine and a bar for each task, with its figures on hover."""
    height = TOP + LANE * instance.machines + BOTTOM
    x = svg.Scale(0.0, schedule.makespan, LEFT, WIDTH - RIGHT)
    foot = height - BOTTOM
    parts: list[Markup] = []
    for mark in x.ticks(8):
        parts.append(svg.element("line", x1=x(mark), x2=x(mark), y1=TOP, y2=foot, class_="grid"))
        parts.append(svg.text(x(mark), foot + 17, formatting.number(mark), class_="tick middle"))
    parts.append(svg.text((x.begin + x.end) / 2, height - 5, "seconds", class_="axis middle"))
    for machine in range(instance.machines):
        top, name = TOP + machine * LANE, instance.machine_name(machine)
        lane = svg.element("rect", x=LEFT, y=top + 2, width=WIDTH - RIGHT - LEFT, height=LANE - 4, class_="lane")
        parts += [lane, svg.text(LEFT - 8, top + LANE / 2 + 4, name, class_="label end")]
        colour = CPU if machine < instance.cpus else GPU
        for task in optimise_view.in_order(schedule, machine):
            seconds = optimise_view.seconds_of(instance, schedule, task)
            bar = _TaskBar(instance.names[task], name, schedule.starts[task], seconds, colour)
            parts.append(_bar(bar, x, top + 2))
    bound = x(schedule.lower_bound)
    parts.append(svg.element("line", x1=bound, x2=bound, y1=TOP - 6, y2=foot, class_="target"))
    what = f"{formatting.count(instance.n, 'task')} on {formatting.count(instance.machines, 'machine')}"
    label = f"{what}, {formatting.number(schedule.makespan)} seconds"
    return svg.drawing(WIDTH, height, label, *parts)


def _bar(task: _TaskBar, x: svg.Scale, top: float) -> Markup:
    begin, width = x(task.start), max(x(task.start + task.seconds) - x(task.start), 0.75)
    span = f"{formatting.number(task.seconds)} s from {formatting.number(task.start)} s"
    parts = [
        svg.title(f"{task.name}: {span} on {task.machine}"),
        svg.element("rect", x=begin, y=top, width=width, height=LANE - 4, class_=f"bar {task.colour}"),
    ]
    if width > 7 * len(task.name) + 4:
        parts.append(svg.text(begin + width / 2, top + LANE / 2 + 2, task.name, class_=f"on {task.colour}"))
    return svg.element("g", *parts, class_="series")
