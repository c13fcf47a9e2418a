"""Workloads from published traces and from seeded generators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from podium_core.tables.csv_table import Numbers, Table, TableError, open_table, shown
from podium_core.tables.text_file import TextFileError, text_lines
from podium_optimisers.engine.workload import BatchJob, Workload, WorkloadError

MAX_JOBS = 2_000_000
MAX_GPUS = 1_000_000  # of one job
PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
EXPECTED = {"timestamp": "an ISO 8601 time", "duration": "a number", "num_gpus": "a whole number"}


def read_philly_trace(path: Path) -> Workload:
    """Read the Philly trace as cleaned by the AdaptDL authors (petuum/adaptdl, osdi21-artifact).

    The file is CSV, plain or gzipped, with the columns timestamp, duration (seconds), num_gpus and cluster. The virtual
    cluster becomes the job's `group`. The first arrival becomes time 0. Raises WorkloadError that names the line and
    the column, or OSError if the file does not exist.
    """
    try:
        table = open_table(text_lines(path), PHILLY_COLUMNS)
        positions = [table.column(name) for name in PHILLY_COLUMNS]
        columns = [at for at in positions if at is not None]
        rows = _rows(table, columns) if len(columns) == len(PHILLY_COLUMNS) else []
    except TextFileError as error:
        text = f"{path.name} cannot be read ({error})."
        raise WorkloadError("InvalidTrace", "(all)", "file", text) from error
    except TableError as error:
        raise WorkloadError("InvalidTrace", f"line {error.line or 1}", "row", f"{error}.") from error
    if not rows:
        text = f"{path.name} needs the columns {', '.join(PHILLY_COLUMNS)} and at least one job."
        raise WorkloadError("InvalidTrace", "(all)", "columns", text)
    numbers = Numbers(table.separator)
    stamps = [_value(row, line, "timestamp", numbers) for line, row in rows]
    first = min(stamps)
    return Workload.of(
        [
            BatchJob(
                f"line {line}",
                stamp - first,
                _value(row, line, "duration", numbers),
                int(_value(row, line, "num_gpus", numbers)),
                group=row["cluster"],
            )
            for (line, row), stamp in zip(rows, stamps, strict=True)
        ]
    )


def _rows(table: Table, columns: Sequence[int]) -> list[tuple[int, dict[str, str]]]:
    """Return each row's line and its fields by column; a missing field is empty."""
    rows: list[tuple[int, dict[str, str]]] = []
    for row in table.rows:
        fields = [row.fields[at] if at < len(row.fields) else "" for at in columns]
        rows.append((row.line, dict(zip(PHILLY_COLUMNS, fields, strict=True))))
        if len(rows) > MAX_JOBS:
            raise TableError(f"more than {MAX_JOBS} jobs; give a shorter trace", row.line)
    return rows


def _value(row: Mapping[str, str], line: int, column: str, numbers: Numbers) -> float:
    """Return one field of a trace row as a number; a timestamp becomes seconds since the epoch."""
    try:
        if column == "timestamp":
            return datetime.fromisoformat(row[column]).replace(tzinfo=UTC).timestamp()
        value = numbers(row[column])
        if column == "num_gpus" and not (value.is_integer() and abs(value) <= MAX_GPUS):  # NaN and infinity neither
            raise ValueError(column)
        return value
    except (ValueError, OverflowError):
        text = f"{shown(row[column])} cannot be read; give {EXPECTED[column]}."
        raise WorkloadError("InvalidTrace", f"line {line}", column, text) from None


def synthetic_trace(jobs: int, generator: np.random.Generator, load: float = 0.9, gpus: int = 64) -> Workload:
    """Generate a workload similar in kind to the Philly trace, for use where the trace is not available.

    Users with different habits submit bursts of similar jobs, more by day than by night. Durations are log-normal
    around those of each user's templates. Most jobs need one GPU, few need up to 16. `load` is the offered GPU-seconds
    divided by `gpus` times the length of the trace.
    """
    users = 24
    group_of_user = generator.integers(0, 6, users)
    # each user has four templates with a typical duration (a minute to about a day) and a width
    typical_duration = np.exp(generator.normal(math.log(1800.0), 1.6, (users, 4)))
    widths = generator.choice([1, 2, 4, 8, 16], size=(users, 4), p=[0.75, 0.09, 0.09, 0.05, 0.02])
    shares = generator.dirichlet(np.full(users, 0.7))
    submissions: list[tuple[float, int, int]] = []
    now = 0.0
    while len(submissions) < jobs:
        hour = (now / 3600.0) % 24.0
        pace = 1.0 + 0.8 * math.sin((hour - 8.0) * math.pi / 12.0)  # busiest at 14 h, quietest at 2 h
        now += float(generator.exponential(600.0 / pace))
        user, template = int(generator.choice(users, p=shares)), int(generator.integers(4))
        for position in range(min(int(generator.geometric(0.3)), jobs - len(submissions))):
            submissions.append((now + 2.0 * position, user, template))
    duration = np.array([typical_duration[user, template] for _, user, template in submissions])
    duration = np.clip(duration * np.exp(generator.normal(0.0, 0.8, jobs)), 10.0, 30 * 86400.0)
    width = np.array([min(int(widths[user, template]), gpus) for _, user, template in submissions], dtype=np.int64)
    arrival = np.array([at for at, _, _ in submissions])
    arrival *= float(np.sum(duration * width)) / (load * gpus * float(np.max(arrival)))
    order = np.argsort(arrival, kind="stable")
    ordered = [submissions[row] for row in order]
    return Workload(
        arrival[order],
        duration[order],
        width[order],
        users=tuple(f"user-{user}" for _, user, _ in ordered),
        groups=tuple(f"group-{group_of_user[user]}" for _, user, _ in ordered),
        templates=tuple(f"template-{template}" for _, _, template in ordered),
    )


def poisson_workload(jobs: int, load: float, generator: np.random.Generator, mean: float = 1.0) -> Workload:
    """Generate M/M/1 input: exponential gaps and durations (mean `mean` seconds), one GPU for each job."""
    arrival = np.cumsum(generator.exponential(mean / load, jobs))
    return Workload(arrival, generator.exponential(mean, jobs), np.ones(jobs, dtype=np.int64))
