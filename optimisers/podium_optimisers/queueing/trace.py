"""A trace of jobs from CSV: when each came, how long it ran, on how many GPUs. Called by `podium capacity`.

Columns are found by the names that public traces use (Philly, PAI, Helios, Alibaba openb); others are simply not read.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.queueing.checks import InputError, require, require_count

ARRIVAL = ("arrival", "timestamp", "submit_time", "submitted", "creation_time", "time")
DURATION = ("duration", "runtime", "run_time", "seconds")
GPUS = ("gpus", "num_gpus", "num_gpu", "gpu_num")


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of arrival; arrays (n,): seconds since the first, seconds of work, GPUs at once."""

    arrivals: NDArray[np.float64]
    services: NDArray[np.float64]
    widths: NDArray[np.int64]

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.arrivals[-1] - self.arrivals[0])

    @property
    def offered(self) -> float:
        """GPUs busy on average if none ever had to wait."""
        return float(self.services @ self.widths) / self.span

    @property
    def rate(self) -> float:
        return (len(self.arrivals) - 1) / self.span

    @property
    def arrival_c2(self) -> float:
        return _c2(np.diff(self.arrivals))

    @property
    def service_c2(self) -> float:
        return _c2(self.services)


def read_trace(lines: Iterable[str]) -> Trace:
    """From CSV with a header. GPUs default to 1; jobs of 0 GPUs are left out. Errors name line and column."""
    rows = _rows(lines)
    header = [name.strip().lower() for name in next(rows, (1, []))[1]]
    arrival, duration = _column(header, ARRIVAL, "arrival"), _column(header, DURATION, "duration")
    gpus = next((header.index(name) for name in GPUS if name in header), None)
    jobs: list[tuple[float, float, int]] = []
    dated: bool | None = None  # the first job's time says what all of them must be
    for number, row in rows:
        if not row:
            continue
        line = f"line {number}"
        if len(row) != len(header):
            text = f"has {len(row)} values, the header {len(header)}; give every column a value"
            raise InputError("RowTooShort" if len(row) < len(header) else "RowTooLong", "row", text, line)
        width = 1 if gpus is None else _count(row[gpus], header[gpus], line)
        if width:
            seconds = require(_number(row[duration], header[duration], line), header[duration], task=line, least=0.0)
            moment, is_date = _moment(row[arrival], header[arrival], line)
            if dated not in (None, is_date):
                others = "dates" if dated else "seconds"
                text = f"{row[arrival]!r} beside {others} in other lines; give times of one kind"
                raise InputError("MixedTimes", header[arrival], text, line)
            dated = is_date
            jobs.append((moment, seconds, width))
    if len(jobs) < 2:
        raise InputError("TooFewJobs", "trace", f"{len(jobs)} jobs show no rate of arrival; give 2 or more")
    jobs.sort(key=lambda job: job[0])  # stable: jobs of one instant stay in the order of the file
    columns = tuple(zip(*jobs, strict=True))
    arrivals = np.asarray(columns[0], dtype=np.float64)
    if arrivals[-1] == arrivals[0]:
        text = "all jobs came at one instant, which is no rate of arrival; give a longer stretch"
        raise InputError("ZeroTimeSpan", header[arrival], text)
    return Trace(arrivals - arrivals[0], np.asarray(columns[1], dtype=np.float64), np.asarray(columns[2], np.int64))


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Number of the line that ends it, and the fields."""
    reader = csv.reader(lines)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:  # a field of more than 131072 characters: most often a quote that nothing closes
        raise InputError("RowMalformed", "row", f"{error}; close each quote", f"line {reader.line_num}") from error


def _c2(times: NDArray[np.float64]) -> float:
    """Variance / mean^2 of times >= 0; 0 where all are 0. Scaled first: the square of a tiny mean would be 0."""
    if not times.any():
        return 0.0
    scaled = times / times.max()
    return float(scaled.var() / scaled.mean() ** 2)


def _column(header: Sequence[str], names: Sequence[str], what: str) -> int:
    for name in names:
        if name in header:
            return header.index(name)
    text = f"no column for it among {', '.join(header) or 'nothing'}; name one {' or '.join(names)}"
    raise InputError("ColumnMissing", what, text)


def _number(text: str, field: str, line: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError("NotANumber", field, f"{text!r} is not a number; give seconds", line) from None


def _count(text: str, field: str, line: str) -> int:
    value = require(_number(text, field, line), field, task=line, least=0.0)
    if value != math.floor(value):
        raise InputError("NotInteger", field, f"{text} is no count; give whole GPUs", line)
    return require_count(int(value), field, task=line, least=0)


def _moment(text: str, field: str, line: str) -> tuple[float, bool]:
    """Seconds as a number, or from an ISO 8601 time (UTC where it names no zone); was it such a date?"""
    try:
        return require(float(text), field, task=line), False
    except InputError:
        raise
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is no time; give seconds or a time such as 2026-01-31T12:00:00"
        raise InputError("InvalidTime", field, message, line) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp(), True
