"""Rows of the tables of `csv_file` and `parquet_file`: one for each value, with its trial's parameters. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from podium_cli.exit_codes import CliError, Exit
from podium_cli.exports.names import clean, moment
from podium_cli.exports.search import ExportedSearch, ExportedTrial
from podium_core.domain.snapshot import Scalar

COLUMNS = ("trial", "number", "phase", "step", "value", "seconds", "time")
PREFIX = "params."  # of the columns of parameters, which may be called step, too
Cell = Scalar | datetime | None


def columns(search: ExportedSearch) -> tuple[str, ...]:
    """Return the names of the columns."""
    return (*COLUMNS, *(f"{PREFIX}{clean(name)}" for name in search.parameters))


def rows(search: ExportedSearch, trial: ExportedTrial) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of one trial. Raises CliError for a parameter that is not of the search."""
    unknown = next((name for name in trial.parameters if name not in search.parameters), None)
    if unknown is not None:
        message = f"trial {clean(trial.name)}: its parameter {clean(unknown)} is not one of the job's parameters"
        raise CliError(Exit.FAILED, "ParameterUnknown", f"{message}; correct the saved objects, or export to mlflow")
    parameters = tuple(trial.parameters.get(name) for name in search.parameters)
    head = (clean(trial.name), trial.number, trial.phase.value)
    for point in trial.points:
        yield (*head, point.step, point.value, point.seconds, moment(point.time), *parameters)
