"""Read a trace of jobs from CSV: arrival, run time and GPUs of each job.

The reader recognises the column names of public traces (Philly, PAI, Helios, Alibaba openb) and ignores other columns.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.validation import InputError, require_count, require_number

ARRIVAL = ("arrival", "timestamp", "submit_time", "submitted", "creation_time", "time")
DURATION = ("duration", "runtime", "run_time", "seconds")
GPUS = ("gpus", "num_gpus", "num_gpu", "gpu_num")


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
    rows = _rows(lines)
    header = [name.strip().lower() for name in next(rows, (1, []))[1]]
    arrival, duration = _column(header, ARRIVAL, "arrival"), _column(header, DURATION, "duration")
    gpus = next((header.index(name) for name in GPUS if name in header), None)
    jobs: list[tuple[float, float, int]] = []
    dated: bool | None = None  # the first job decides whether arrival times are dates or seconds
    for number, row in rows:
        if not row:
            continue
        line = f"line {number}"
        if len(row) != len(header):
            text = f"the row has {len(row)} values and the header {len(header)}; give one value for each column"
            raise InputError("RowTooShort" if len(row) < len(header) else "RowTooLong", "row", text, line)
        width = 1 if gpus is None else _count(row[gpus], header[gpus], line)
        if width:
            seconds = require_number(
                _number(row[duration], header[duration], line), header[duration], item=line, at_least=0.0
            )
            moment, is_date = _moment(row[arrival], header[arrival], line)
            if dated not in (None, is_date):
                others = "dates" if dated else "seconds"
                text = f"{row[arrival]!r} differs from the {others} in other lines; use one kind of time"
                raise InputError("MixedTimes", header[arrival], text, line)
            dated = is_date
            jobs.append((moment, seconds, width))
    if len(jobs) < 2:
        raise InputError("TooFewJobs", "trace", f"{len(jobs)} jobs do not determine an arrival rate; give 2 or more")
    jobs.sort(key=lambda job: job[0])  # stable: jobs with equal arrival keep the order of the file
    columns = tuple(zip(*jobs, strict=True))
    arrivals = np.asarray(columns[0], dtype=np.float64)
    if arrivals[-1] == arrivals[0]:
        text = "all jobs arrive at one instant, so there is no arrival rate; give a longer trace"
        raise InputError("ZeroTimeSpan", header[arrival], text)
    return JobTrace(arrivals - arrivals[0], np.asarray(columns[1], dtype=np.float64), np.asarray(columns[2], np.int64))


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield each row's last line number and its fields."""
    reader = csv.reader(lines)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:  # a field of more than 131072 characters: most often an unclosed quotation mark
        text = f"{error}; close each quotation mark"
        raise InputError("RowMalformed", "row", text, f"line {reader.line_num}") from error


def _c2(times: NDArray[np.float64]) -> float:
    """Return variance / mean^2 of times >= 0, or 0 if all are 0.

    The times are scaled first because the square of a tiny mean would underflow to 0.
    """
    if not times.any():
        return 0.0
    scaled = times / times.max()
    return float(scaled.var() / scaled.mean() ** 2)


def _column(header: Sequence[str], names: Sequence[str], what: str) -> int:
    """Return the position of the first of these column names in the header."""
    for name in names:
        if name in header:
            return header.index(name)
    text = f"the header has no such column ({', '.join(header) or 'empty'}); name one column {' or '.join(names)}"
    raise InputError("ColumnMissing", what, text)


def _number(text: str, field: str, line: str) -> float:
    """Return the field as a number."""
    try:
        return float(text)
    except ValueError:
        raise InputError("NotANumber", field, f"{text!r} is not a number; give seconds", line) from None


def _count(text: str, field: str, line: str) -> int:
    """Return the field as a whole number >= 0."""
    value = require_number(_number(text, field, line), field, item=line, at_least=0.0)
    if value != math.floor(value):
        raise InputError("NotInteger", field, f"{text} is not a whole number; give a whole number of GPUs", line)
    return require_count(int(value), field, item=line, at_least=0)


def _moment(text: str, field: str, line: str) -> tuple[float, bool]:
    """Return seconds and whether the field is a date.

    The field is a number of seconds or an ISO 8601 time (UTC if it names no time zone).
    """
    try:
        return require_number(float(text), field, item=line), False
    except InputError:
        raise
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is not a time; give seconds or a time such as 2026-01-31T12:00:00"
        raise InputError("InvalidTime", field, message, line) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), True
