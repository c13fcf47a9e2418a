"""Rows of the tables of `csv_file` and `parquet_file`: one for each value, with its trial's parameters. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from podium_cli.exit_codes import CliError, Exit
from podium_cli.exports.names import clean, moment, text
from podium_cli.exports.search import NUMBER, WHOLE, ExportedSearch, ExportedTrial
from podium_core.domain.snapshot import Scalar

COLUMNS = ("trial", "number", "phase", "step", "value", "seconds", "time")
PREFIX = "params."  # of the columns of parameters, which may be called step, too
MAX_INTEGER = 1 << 63
Cell = str | int | float | datetime | None


def columns(search: ExportedSearch) -> tuple[str, ...]:
    """Return the names of the columns."""
    return (*COLUMNS, *(f"{PREFIX}{clean(name)}" for name in search.parameters))


def rows(search: ExportedSearch, trial: ExportedTrial) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of one trial. Raises CliError for a parameter that is not of the search."""
    unknown = next((name for name in trial.parameters if name not in search.parameters), None)
    if unknown is not None:
        message = f"trial {clean(trial.name)}: its parameter {clean(unknown)} is not one of the job's parameters"
        raise CliError(Exit.FAILED, "ParameterUnknown", f"{message}; correct the saved objects, or export to mlflow")
    parameters = tuple(_cell(trial.parameters.get(name), kind) for name, kind in search.parameters.items())
    head = (clean(trial.name), trial.number, trial.phase.value)
    for point in trial.points:
        yield (*head, point.step, point.value, point.seconds, moment(point.time), *parameters)


def _cell(value: Scalar | None, kind: str) -> Cell:
    """Return a parameter as its column holds it; a value of another kind than the column's is missing."""
    if value is None:
        return None
    if kind == WHOLE:
        whole = isinstance(value, int | float) and float(value).is_integer() and abs(value) < MAX_INTEGER
        return int(value) if whole else None
    if kind == NUMBER:
        return float(value) if isinstance(value, int | float) else None
    return text(value)
