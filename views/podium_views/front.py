"""The Pareto front of several objectives as text, for the watch view, the summary and the list of jobs."""

from __future__ import annotations

from collections.abc import Sequence

from podium_core.schema.job import JobSpec
from podium_core.schema.job_status import FrontTrial
from podium_views import formatting

MAX_SHOWN = 4  # trials of one line


def objectives(spec: JobSpec) -> str:
    """Return the objectives with their directions."""
    return ", ".join(f"{formatting.clean(one.metric)} ({one.direction.value})" for one in spec.objectives or ())


def values(one: FrontTrial) -> str:
    """Return the values of a trial, in the order of the objectives."""
    return " / ".join(map(formatting.number, one.values))


def line(front: Sequence[FrontTrial]) -> str:
    """Return the front on one line: its size, and its trials with their values."""
    if not front:
        return "no trial has a value of every objective yet"
    shown = ", ".join(f"{formatting.clean(one.trial)} {values(one)}" for one in front[:MAX_SHOWN])
    more = f" and {len(front) - MAX_SHOWN} more" if len(front) > MAX_SHOWN else ""
    return f"Pareto front of {formatting.count(len(front), 'trial')}: {shown}{more}"
