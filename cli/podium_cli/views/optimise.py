"""Output of `podium optimise`: tables of machines and methods, and data.

The optimisers may not be installed, so only the type checker imports their types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from podium_cli.structured import items
from podium_views import formatting

if TYPE_CHECKING:
    from podium_optimisers.makespan.instance import MakespanInstance
    from podium_optimisers.makespan.registry import MakespanMethod
    from podium_optimisers.makespan.schedule import MakespanSchedule


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
        mine = in_order(schedule, machine)
        end = max((schedule.starts[task] + seconds_of(instance, schedule, task) for task in mine), default=0.0)
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


def data(instance: MakespanInstance, schedules: Sequence[MakespanSchedule]) -> dict[str, object] | list[object]:
    """Return the schedule for programs; a list if there are several."""
    if len(schedules) == 1:
        return _plain_data(instance, schedules[0])
    return [_plain_data(instance, schedule) for schedule in schedules]


def _plain_data(instance: MakespanInstance, schedule: MakespanSchedule) -> dict[str, object]:
    tasks = [
        {
            "name": instance.names[task],
            "machine": instance.machine_name(machine),
            "start": schedule.starts[task],
            "seconds": seconds_of(instance, schedule, task),
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


def methods_data(known: Iterable[MakespanMethod]) -> dict[str, object]:
    """Return the names of the methods and their descriptions for programs."""
    return items({"name": method.name, "description": method.description} for method in known)


def in_order(schedule: MakespanSchedule, machine: int) -> list[int]:
    """Return the tasks of a machine in the order of their start."""
    mine = [task for task, where in enumerate(schedule.assignment) if where == machine]
    return sorted(mine, key=lambda task: schedule.starts[task])


def seconds_of(instance: MakespanInstance, schedule: MakespanSchedule, task: int) -> float:
    """Return the seconds that the task takes on its machine."""
    side = instance.cpu if schedule.assignment[task] < instance.cpus else instance.gpu
    return float(side[task])


def _plain(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column not in ("RUNS", "DESCRIPTION"))
    return table
