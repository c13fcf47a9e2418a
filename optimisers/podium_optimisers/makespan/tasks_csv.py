"""Read tasks from CSV with the columns name, cpu and gpu (seconds).

An empty time means that the task cannot run on that side. Errors name the line, the task and the field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from podium_core.tables.csv_table import Numbers, Table, TableError, open_table, shown_name
from podium_optimisers.makespan.instance import (
    InvalidNameError,
    InvalidTimeError,
    MakespanError,
    MakespanInstance,
    NoTasksError,
    check_machines,
    check_task,
)

COLUMNS = ("name", "cpu", "gpu")
MAX_TASKS = 1_000_000


class InvalidTableError(MakespanError):
    """The CSV has a wrong header, a wrong number of fields or wrong quotation marks."""

    code = "InvalidTable"


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One line of the file: a task with its seconds on a CPU and on a GPU."""

    name: str
    cpu: float
    gpu: float


def read_tasks(text: str, cpus: int, gpus: int) -> MakespanInstance:
    """Read an instance from CSV text. Raise MakespanError if the text or a task is invalid."""
    check_machines(cpus, gpus)
    try:
        rows = _rows(open_table(text.splitlines(keepends=True), COLUMNS), cpus, gpus)
    except TableError as error:
        message = f"line {error.line or 1}: {error}"
        raise InvalidTableError(f"{message}; give name, cpu, gpu (seconds)") from error
    return MakespanInstance.of(
        [row.cpu for row in rows.values()], [row.gpu for row in rows.values()], cpus, gpus, tuple(rows)
    )


def _rows(table: Table, cpus: int, gpus: int) -> dict[str, TaskRow]:
    """Return the rows by task name."""
    positions = [table.column(name) for name in COLUMNS]
    if None in positions or len([name for name in table.names if name]) != len(COLUMNS):
        header = ", ".join(map(shown_name, table.names))[:200] or "missing"
        raise InvalidTableError(f"line 1: the columns are {header}; give name, cpu, gpu (seconds)")
    numbers = Numbers(table.separator)
    columns = [at for at in positions if at is not None]
    rows: dict[str, TaskRow] = {}
    for line in table.rows:
        fields = line.fields
        if len(fields) <= max(columns) or any(fields[len(table.names) :]):
            raise InvalidTableError(
                f"line {line.line}: the line does not have three fields; give name,cpu,gpu (a time may be empty)"
            )
        row = _row(line.line, {name: fields[at] for name, at in zip(COLUMNS, columns, strict=True)}, numbers)
        if row.name in rows:
            raise InvalidNameError(
                f"line {line.line}: task {row.name}: name: two tasks have this name; give each task its own name"
            )
        check_task(row.name, row.cpu, row.gpu, cpus, gpus)
        rows[row.name] = row
        if len(rows) > MAX_TASKS:
            raise InvalidTableError(f"line {line.line}: more than {MAX_TASKS} tasks; give fewer lines")
    if not rows:
        raise NoTasksError("tasks: there are no lines below the header; give at least one line name,cpu,gpu")
    return rows


def _row(number: int, line: Mapping[str, str], numbers: Numbers) -> TaskRow:
    """Return one line as a task; an empty time is infinite."""
    name = line["name"]
    if not 1 <= len(name) <= 200:
        raise InvalidNameError(f"line {number}: task {name[:60] or 'without a name'}: name: give 1 to 200 characters")
    seconds: dict[str, float] = {}
    for field in ("cpu", "gpu"):
        try:
            seconds[field] = numbers(line[field]) if line[field] else math.inf
        except ValueError as error:
            text = f"line {number}: task {name}: {field}: {error}"
            raise InvalidTimeError(f"{text}, or leave it empty if the task cannot run there") from error
    return TaskRow(name, seconds["cpu"], seconds["gpu"])
