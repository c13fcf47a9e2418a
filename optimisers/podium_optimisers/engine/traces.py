"""Workloads from traces and from seeded generators. Called by benchmarks, tests and the learning environment."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from podium_optimisers.engine.workload import Job, Workload, WorkloadError

PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
WANTED = {"timestamp": "a time", "duration": "a number", "num_gpus": "a whole number"}


def read_philly(path: Path) -> Workload:
    """The Philly trace as cleaned by the AdaptDL authors (petuum/adaptdl, osdi21-artifact): CSV, plain or gzipped, with
    columns timestamp, duration (s), num_gpus, cluster (virtual cluster, our `group`). The first arrival becomes time 0.

    Errors: WorkloadError names line and column; OSError where there is no such file.
    """
    reader = csv.DictReader(_text(path).splitlines())
    try:
        rows = list(reader)
    except csv.Error as error:
        text = f"is no CSV ({error}); close each quote."
        raise WorkloadError("InvalidTrace", f"line {reader.reader.line_num}", "row", text) from error
    if not rows or any(column not in rows[0] for column in PHILLY_COLUMNS):
        sentence = f"{path.name} needs the columns {', '.join(PHILLY_COLUMNS)} and at least one job."
        raise WorkloadError("InvalidTrace", "(all)", "columns", sentence)
    stamps = [_value(row, number, "timestamp") for number, row in enumerate(rows, start=2)]
    first = min(stamps)
    return Workload.of(
        [
            Job(
                f"line {number}",
                stamp - first,
                _value(row, number, "duration"),
                int(_value(row, number, "num_gpus")),
                group=row["cluster"],
            )
            for number, (row, stamp) in enumerate(zip(rows, stamps, strict=True), start=2)
        ]
    )


def _text(path: Path) -> str:
    content = path.read_bytes()
    try:
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as error:
        text = f"{path.name} cannot be read ({error}); fetch the file again."
        raise WorkloadError("InvalidTrace", "(all)", "file", text) from error


def _value(row: dict[str, str], number: int, column: str) -> float:
    try:
        if column == "timestamp":
            return datetime.fromisoformat(row[column]).replace(tzinfo=UTC).timestamp()
        value = float(row[column])
        if column == "num_gpus" and not value.is_integer():  # also NaN and infinity
            raise ValueError(column)
        return value
    except (TypeError, ValueError):
        text = f"{row[column]!r} cannot be read; give {WANTED[column]}."
        raise WorkloadError("InvalidTrace", f"line {number}", column, text) from None


def synthetic_trace(jobs: int, generator: np.random.Generator, load: float = 0.9, gpus: int = 64) -> Workload:
    """Ours, Philly-like in kind, for where the trace is absent: users of different habits submit bursts of alike jobs
    by day and night; durations are log-normal around each template's; most jobs take one GPU, few take up to 16.

    `load`: offered GPU-seconds over `gpus` times the span.
    """
    users = 24
    group = generator.integers(0, 6, users)
    # every user has four templates: typical duration from a minute to about a day, and a width
    typical = np.exp(generator.normal(math.log(1800.0), 1.6, (users, 4)))
    widths = generator.choice([1, 2, 4, 8, 16], size=(users, 4), p=[0.75, 0.09, 0.09, 0.05, 0.02])
    shares = generator.dirichlet(np.full(users, 0.7))
    found: list[tuple[float, int, int]] = []
    now = 0.0
    while len(found) < jobs:
        hour = (now / 3600.0) % 24.0
        pace = 1.0 + 0.8 * math.sin((hour - 8.0) * math.pi / 12.0)  # busiest at 14 h, quietest at 2 h
        now += float(generator.exponential(600.0 / pace))
        user, template = int(generator.choice(users, p=shares)), int(generator.integers(4))
        for turn in range(min(int(generator.geometric(0.3)), jobs - len(found))):
            found.append((now + 2.0 * turn, user, template))
    duration = np.array([typical[user, template] for _, user, template in found])
    duration = np.clip(duration * np.exp(generator.normal(0.0, 0.8, jobs)), 10.0, 30 * 86400.0)
    width = np.array([min(int(widths[user, template]), gpus) for _, user, template in found], dtype=np.int64)
    arrival = np.array([at for at, _, _ in found])
    arrival *= float(np.sum(duration * width)) / (load * gpus * float(np.max(arrival)))
    order = np.argsort(arrival, kind="stable")
    people = [found[row] for row in order]
    return Workload(
        arrival[order],
        duration[order],
        width[order],
        users=tuple(f"user-{user}" for _, user, _ in people),
        groups=tuple(f"group-{group[user]}" for _, user, _ in people),
        templates=tuple(f"template-{template}" for _, _, template in people),
    )


def poisson(jobs: int, load: float, generator: np.random.Generator, mean: float = 1.0) -> Workload:
    """M/M/1 input: exponential gaps and durations (mean `mean` seconds), one GPU each."""
    arrival = np.cumsum(generator.exponential(mean / load, jobs))
    return Workload(arrival, generator.exponential(mean, jobs), np.ones(jobs, dtype=np.int64))
