"""Read tasks from CSV with the columns name, cpu and gpu (seconds).

An empty time means that the task cannot run on that side. Errors name the line, the task and the field.
"""

from __future__ import annotations

import csv
import math
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

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


class InvalidTableError(MakespanError):
    """The CSV has a wrong header, a wrong number of fields or wrong quotation marks."""

    code = "InvalidTable"


def _seconds(given: object) -> object:
    """Return inf for an empty field and the field otherwise."""
    return math.inf if isinstance(given, str) and not given.strip() else given


Seconds = Annotated[float, BeforeValidator(_seconds)]


class TaskRow(BaseModel):
    """One line of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    name: str = Field(min_length=1, max_length=200)
    cpu: Seconds
    gpu: Seconds


def read_tasks(text: str, cpus: int, gpus: int) -> MakespanInstance:
    """Read an instance from CSV text. Raise MakespanError if the text or a task is invalid."""
    check_machines(cpus, gpus)
    lines = csv.DictReader(text.lstrip("\ufeff").splitlines(), skipinitialspace=True)
    try:
        rows = _rows(lines, cpus, gpus)
    except csv.Error as error:
        message = f"line {lines.reader.line_num}: the row is not valid CSV ({error})"
        raise InvalidTableError(f"{message}; give name,cpu,gpu and close each quotation mark") from error
    return MakespanInstance.of(
        [row.cpu for row in rows.values()], [row.gpu for row in rows.values()], cpus, gpus, tuple(rows)
    )


def _rows(lines: csv.DictReader[str], cpus: int, gpus: int) -> dict[str, TaskRow]:
    """Return the rows by task name."""
    header = tuple((name or "").strip() for name in lines.fieldnames or ())
    if sorted(header) != sorted(COLUMNS):
        shown = ", ".join(header) or "missing"
        raise InvalidTableError(f"line 1: the columns are {shown}; give name, cpu, gpu (seconds)")
    lines.fieldnames = list(header)
    rows: dict[str, TaskRow] = {}
    for line in lines:
        row = _row(lines.line_num, line)
        if row.name in rows:
            raise InvalidNameError(
                f"line {lines.line_num}: task {row.name}: name: two tasks have this name; give each task its own name"
            )
        check_task(row.name, row.cpu, row.gpu, cpus, gpus)
        rows[row.name] = row
    if not rows:
        raise NoTasksError("tasks: there are no lines below the header; give at least one line name,cpu,gpu")
    return rows


def _row(number: int, line: dict[str, str | None]) -> TaskRow:
    """Validate one line."""
    if None in line or None in line.values():
        raise InvalidTableError(
            f"line {number}: the line does not have three fields; give name,cpu,gpu (a time may be empty)"
        )
    try:
        return TaskRow.model_validate(line)
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        name = (line["name"] or "").strip() or "without a name"
        if field == "name":
            raise InvalidNameError(f"line {number}: task {name}: name: give 1 to 200 characters") from error
        text = f"line {number}: task {name}: {field}: {line[field]!r} is not a number"
        raise InvalidTimeError(f"{text}; give seconds, or leave it empty if the task cannot run there") from error
