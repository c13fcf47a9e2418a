"""Read a trace of jobs from CSV: arrival, run time and GPUs of each job.

The reader recognises the column names of public traces (Philly, PAI, Helios, Alibaba openb) and ignores other columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from podium_core.tables.csv_table import Numbers, Table, TableError, open_table, shown, shown_name
from podium_optimisers.validation import InputError, require_count, require_number

ARRIVAL = ("arrival", "timestamp", "submit_time", "submitted", "creation_time", "time")
DURATION = ("duration", "runtime", "run_time", "seconds")
GPUS = ("gpus", "num_gpus", "num_gpu", "gpu_num")
MAX_JOBS = 5_000_000
MAX_GPUS = 1_000_000  # of one job


@dataclass(frozen=True, slots=True)
class JobTrace:
    """Jobs in order of arrival, as arrays (n,): seconds since the first arrival, seconds of work, GPUs."""

    arrivals: NDArray[np.float64]
    services: NDArray[np.float64]
    widths: NDArray[np.int64]

    @property
    def span(self) -> float:
        """Return the seconds from the first arrival to the last."""
        return float(self.arrivals[-1] - self.arrivals[0])

    @property
    def offered_load(self) -> float:
        """Return the GPUs that would be busy on average if no job had to wait."""
        return float(self.services @ self.widths) / self.span

    @property
    def rate(self) -> float:
        """Return the arrivals per second."""
        return (len(self.arrivals) - 1) / self.span

    @property
    def arrival_c2(self) -> float:
        """Return the squared coefficient of variation of the gaps between arrivals."""
        return _c2(np.diff(self.arrivals))

    @property
    def service_c2(self) -> float:
        """Return the squared coefficient of variation of the run times."""
        return _c2(self.services)


def read_trace(lines: Iterable[str]) -> JobTrace:
    """Read CSV with a header. GPUs default to 1; jobs without GPUs are skipped.

    Raises InputError that names the line and the column.
    """
    try:
        return _trace(open_table(lines, {*ARRIVAL, *DURATION, *GPUS}))
    except TableError as error:
        item = f"line {error.line}" if error.line else ""
        raise InputError("RowMalformed" if error.line else "ColumnRepeated", "row", str(error), item) from error


def _trace(table: Table) -> JobTrace:
    arrival, duration = _column(table, ARRIVAL, "arrival"), _column(table, DURATION, "duration")
    gpus = next((at for name in GPUS if (at := table.column(name)) is not None), None)
    fields = _Fields(table.names, Numbers(table.separator))
    jobs: list[tuple[float, float, int]] = []
    dated: bool | None = None  # the first job decides whether arrival times are dates or seconds
    for row in table.rows:
        line = f"line {row.line}"
        values = row.fields
        if len(values) > len(table.names) and not any(values[len(table.names) :]):
            values = values[: len(table.names)]
        if len(values) != len(table.names):
            text = f"the row has {len(values)} values and the header {len(table.names)}; give one value for each column"
            raise InputError("RowTooShort" if len(values) < len(table.names) else "RowTooLong", "row", text, line)
        if len(jobs) >= MAX_JOBS:
            raise InputError("TooManyJobs", "row", f"more than {MAX_JOBS} jobs; give a shorter trace", line)
        width = 1 if gpus is None else fields.count(values, gpus, line)
        if width:
            seconds = fields.number(values, duration, line)
            require_number(seconds, table.names[duration], item=line, at_least=0.0)
            moment, is_date = fields.moment(values, arrival, line)
            if dated not in (None, is_date):
                others = "dates" if dated else "seconds"
                text = f"{values[arrival]!r} differs from the {others} in other lines; use one kind of time"
                raise InputError("MixedTimes", table.names[arrival], text, line)
            dated = is_date
            jobs.append((moment, seconds, width))
    if len(jobs) < 2:
        raise InputError("TooFewJobs", "trace", f"{len(jobs)} jobs do not determine an arrival rate; give 2 or more")
    jobs.sort(key=lambda job: job[0])  # stable: jobs with equal arrival keep the order of the file
    columns = tuple(zip(*jobs, strict=True))
    arrivals = np.asarray(columns[0], dtype=np.float64)
    if arrivals[-1] == arrivals[0]:
        text = "all jobs arrive at one instant, so there is no arrival rate; give a longer trace"
        raise InputError("ZeroTimeSpan", table.names[arrival], text)
    return JobTrace(arrivals - arrivals[0], np.asarray(columns[1], dtype=np.float64), np.asarray(columns[2], np.int64))


def _c2(times: NDArray[np.float64]) -> float:
    """Return variance / mean^2 of times >= 0, or 0 if all are 0.

    The times are scaled first because the square of a tiny mean would underflow to 0.
    """
    if not times.any():
        return 0.0
    scaled = times / times.max()
    return float(scaled.var() / scaled.mean() ** 2)


def _column(table: Table, names: Sequence[str], what: str) -> int:
    """Return the position of the first of these column names in the header."""
    for name in names:
        if (at := table.column(name)) is not None:
            return at
    header = ", ".join(map(shown_name, table.names))[:200] or "empty"
    text = f"the header has no such column ({header}); name one column {' or '.join(names)}"
    raise InputError("ColumnMissing", what, text)


@dataclass(frozen=True, slots=True)
class _Fields:
    """Reader of the fields of a table's rows."""

    names: Sequence[str]
    numbers: Numbers

    def number(self, values: Sequence[str], at: int, line: str) -> float:
        """Return a field as a number."""
        try:
            return self.numbers(values[at])
        except ValueError as error:
            raise InputError("NotANumber", self.names[at], str(error), line) from None

    def count(self, values: Sequence[str], at: int, line: str) -> int:
        """Return a field as a whole number of GPUs."""
        value = require_number(self.number(values, at, line), self.names[at], item=line, at_least=0.0)
        if value != math.floor(value) or value > MAX_GPUS:
            text = f"{shown(values[at])} is not a whole number up to {MAX_GPUS}; give the number of GPUs"
            raise InputError("NotInteger", self.names[at], text, line)
        return require_count(int(value), self.names[at], item=line, at_least=0)

    def moment(self, values: Sequence[str], at: int, line: str) -> tuple[float, bool]:
        """Return seconds and whether the field is a date.

        The field is a number of seconds or an ISO 8601 time (UTC if it names no time zone).
        """
        text, name = values[at], self.names[at]
        try:
            moment = datetime.fromisoformat(text) if "-" in text[1:] or ":" in text else None
        except ValueError:
            moment = None
        if moment is not None:
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), True
        try:
            return require_number(self.numbers(text), name, item=line), False
        except InputError:
            raise
        except ValueError:
            message = f"{shown(text)} is not a time; give seconds or a time such as 2026-01-31T12:00:00"
            raise InputError("InvalidTime", name, message, line) from None
