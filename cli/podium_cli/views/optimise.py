"""Output of `podium optimise`: tables of machines and methods, JSON, and a page with a Gantt chart.

The optimisers may not be installed, so only the type checker imports their types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from podium_cli.report import svg
from podium_cli.report.markup import Markup, element, escaped
from podium_cli.report.page import page_head
from podium_cli.views import formatting

if TYPE_CHECKING:
    from podium_optimisers.makespan.instance import MakespanInstance
    from podium_optimisers.makespan.registry import MakespanMethod
    from podium_optimisers.makespan.schedule import MakespanSchedule

WIDTH, LEFT, RIGHT, TOP, BOTTOM, LANE = 1040.0, 64.0, 16.0, 12.0, 40.0, 20.0
CPU, GPU = "l2", "l0"  # colours of page.css


def summary(instance: MakespanInstance, schedule: MakespanSchedule) -> str:
    """Return the makespan of the schedule and its largest possible distance from the optimum."""
    took = "" if schedule.seconds is None else f" Took {formatting.duration(schedule.seconds)}."
    hardware = f"{formatting.count(instance.cpus, 'CPU')} and {formatting.count(instance.gpus, 'GPU')}"
    return (
        f"{schedule.method}: {formatting.count(instance.n, 'task')} on {hardware}, done after "
        f"{formatting.number(schedule.makespan)} s. "
        f"No schedule ends before {formatting.number(schedule.lower_bound)} s, "
        f"so this one is at most {schedule.ratio:.3f} times the optimum.{took}"
    )


def machines(instance: MakespanInstance, schedule: MakespanSchedule) -> Table:
    """Return a row for each machine: its number of tasks, its end, and its tasks in order."""
    table = _plain("MACHINE", "TASKS", "ENDS", "RUNS")
    for machine in range(instance.machines):
        mine = _in_order(schedule, machine)
        end = max((schedule.starts[task] + _seconds(instance, schedule, task) for task in mine), default=0.0)
        names = " ".join(formatting.clean(instance.names[task]) for task in mine)
        table.add_row(
            instance.machine_name(machine), str(len(mine)), formatting.number(end), Text(names or formatting.NOTHING)
        )
    return table


def comparison(schedules: Sequence[MakespanSchedule]) -> Table:
    """Return the methods, the best first; all have the best bound that any of them proved."""
    bound = max(schedule.lower_bound for schedule in schedules)
    table = _plain("METHOD", "MAKESPAN", "AT MOST X OPTIMUM", "TOOK")
    for schedule in sorted(schedules, key=lambda one: one.makespan):
        row = (schedule.method, formatting.number(schedule.makespan, 6), f"{schedule.makespan / bound:.4f}")
        table.add_row(*row, formatting.duration(schedule.seconds))
    return table


def methods(known: Iterable[MakespanMethod]) -> Table:
    """Return the names of the methods and their descriptions."""
    table = _plain("METHOD", "DESCRIPTION")
    for method in known:
        table.add_row(method.name, Text(method.description))
    return table


def as_json(instance: MakespanInstance, schedules: Sequence[MakespanSchedule]) -> str:
    """Return the schedule as JSON; an array if there are several."""
    found = [_plain_data(instance, schedule) for schedule in schedules]
    return json.dumps(found[0] if len(found) == 1 else found, indent=2)


def _plain_data(instance: MakespanInstance, schedule: MakespanSchedule) -> dict[str, object]:
    tasks = [
        {
            "name": instance.names[task],
            "machine": instance.machine_name(machine),
            "start": schedule.starts[task],
            "seconds": _seconds(instance, schedule, task),
        }
        for task, machine in enumerate(schedule.assignment)
    ]
    return {
        "method": schedule.method,
        "cpus": instance.cpus,
        "gpus": instance.gpus,
        "makespan": schedule.makespan,
        "lowerBound": schedule.lower_bound,
        "certifiedRatio": schedule.ratio,
        "seconds": schedule.seconds,
        "tasks": tasks,
    }


def page(instance: MakespanInstance, schedule: MakespanSchedule) -> str:
    """Return one HTML file without scripts, links or external fonts."""
    head = page_head(f"{schedule.method} - Podium schedule")
    legend = element(
        "ul",
        element("li", element("i", class_="b2"), escaped("on a CPU")),
        element("li", element("i", class_="b0"), escaped("on a GPU")),
        element("li", escaped("dashed: lower bound of every schedule")),
        class_="legend",
    )
    body = element(
        "body",
        element(
            "main",
            element("p", escaped("Podium schedule"), class_="kicker"),
            element("h1", escaped(schedule.method)),
            element("p", escaped(summary(instance, schedule)), class_="soft"),
            element("div", legend, element("div", _gantt(instance, schedule), class_="scroll wide"), class_="card"),
        ),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _gantt(instance: MakespanInstance, schedule: MakespanSchedule) -> Markup:
    """Draw a lane for each machine and a bar for each task, with its figures on hover."""
    height = TOP + LANE * instance.machines + BOTTOM
    x = svg.Scale(0.0, schedule.makespan, LEFT, WIDTH - RIGHT)
    foot = height - BOTTOM
    parts: list[Markup] = []
    for mark in x.ticks(8):
        parts.append(element("line", x1=x(mark), x2=x(mark), y1=TOP, y2=foot, class_="grid"))
        parts.append(svg.text(x(mark), foot + 17, formatting.number(mark), class_="tick middle"))
    parts.append(svg.text((x.begin + x.end) / 2, height - 5, "seconds", class_="axis middle"))
    for machine in range(instance.machines):
        top = TOP + machine * LANE
        lane = element("rect", x=LEFT, y=top + 2, width=WIDTH - RIGHT - LEFT, height=LANE - 4, class_="lane")
        parts += [lane, svg.text(LEFT - 8, top + LANE / 2 + 4, instance.machine_name(machine), class_="label end")]
        level = CPU if machine < instance.cpus else GPU
        parts += [_bar(instance, schedule, task, x, top + 2, level) for task in _in_order(schedule, machine)]
    bound = x(schedule.lower_bound)
    parts.append(element("line", x1=bound, x2=bound, y1=TOP - 6, y2=foot, class_="target"))
    what = f"{formatting.count(instance.n, 'task')} on {formatting.count(instance.machines, 'machine')}"
    label = f"{what}, {formatting.number(schedule.makespan)} seconds"
    return svg.drawing(WIDTH, height, label, *parts)


def _bar(
    instance: MakespanInstance, schedule: MakespanSchedule, task: int, x: svg.Scale, top: float, level: str
) -> Markup:
    start, seconds = schedule.starts[task], _seconds(instance, schedule, task)
    begin, width = x(start), max(x(start + seconds) - x(start), 0.75)
    name = instance.names[task]
    about = f"{name}: {formatting.number(seconds)} s from {formatting.number(start)} s on "
    parts = [
        svg.title(about + instance.machine_name(schedule.assignment[task])),
        element("rect", x=begin, y=top, width=width, height=LANE - 4, class_=f"bar {level}"),
    ]
    if width > 7 * len(name) + 4:
        parts.append(svg.text(begin + width / 2, top + LANE / 2 + 2, name, class_=f"on {level}"))
    return element("g", *parts, class_="series")


def _in_order(schedule: MakespanSchedule, machine: int) -> list[int]:
    mine = [task for task, where in enumerate(schedule.assignment) if where == machine]
    return sorted(mine, key=lambda task: schedule.starts[task])


def _seconds(instance: MakespanInstance, schedule: MakespanSchedule, task: int) -> float:
    side = instance.cpu if schedule.assignment[task] < instance.cpus else instance.gpu
    return float(side[task])


def _plain(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column not in ("RUNS", "DESCRIPTION"))
    return table
