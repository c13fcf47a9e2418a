"""What a reader returns: steps and values of one line or event, and the format that they are read in.

A source that has no lines (event files, a page of metrics) writes its records by `ready_line`, and `ready_reader` reads
them. So the builder of a curve handles one kind of input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class MetricsFormat(Protocol):
    """Format of one trial's log: `schema.metrics_config.MetricsConfig`, or any object like it."""

    @property
    def metric(self) -> str: ...
    @property
    def step_key(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def filter(self) -> str | None: ...
    @property
    def additional(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class AdditionalValue:
    """Value of an additional metric; `step` is None where no step was printed with it."""

    metric: str
    step: float | None
    value: float


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """Content of one line: a step alone (the value follows on a later line), a value alone, or both.

    Step and value are both None on a line that reports only additional metrics.
    """

    step: float | None
    value: float | None
    additional: tuple[AdditionalValue, ...] = ()


Reader = Callable[[str], list[ParsedLine]]


def ready_line(step: float, values: Mapping[str, float]) -> str:
    """Return the line of a record whose numbers are known already."""
    return json.dumps({"step": step, "values": dict(values)})


def ready_reader(metric: str, additional: Sequence[str]) -> Reader:
    """Return the reader of the lines of `ready_line`, which no trial writes."""

    def read(line: str) -> list[ParsedLine]:
        record = json.loads(line)
        step, values = record["step"], record["values"]
        more = tuple(AdditionalValue(name, step, values[name]) for name in additional if name in values)
        if metric in values:
            return [ParsedLine(step, values[metric], more)]
        return [ParsedLine(None, None, more)] if more else []

    return read
