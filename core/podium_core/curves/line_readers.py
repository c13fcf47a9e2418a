"""From a line that a trial printed to steps and values: JSON, text by a pattern, or Hugging Face's dicts. Pure.

Used by the agent for the logs on its node, by the operator for trials without a GPU, which may run where no agent is.
A line that says nothing of the job's metrics gives nothing, never an error: logs hold anything. What a line says of the
objective does not hang on which additional metrics are asked for.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

NUMBER = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|inf(?:inity)?)"
DEFAULT_FILTER = rf"(?P<name>[\w|./@-]+)\s*[=:]\s*(?P<value>{NUMBER})(?![\w.])"
_NOT_LITERAL = re.compile(r"(?<![\w'\"])(-?)(nan|inf)(?![\w'\"])", re.IGNORECASE)


class Reading(Protocol):
    """How to read one trial's log: `schema.reading.MetricsReading`, or anything like it."""

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
class Other:
    """A value of an additional metric; `step` is None where none was printed with it."""

    metric: str
    step: float | None
    value: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What one line said of the objective: a step alone (the value follows on a later line), a value alone, both, or
    nothing (then it only has `others`).
    """

    step: float | None
    value: float | None
    others: tuple[Other, ...] = ()


Reader = Callable[[str], list[Seen]]


def reader(reading: Reading) -> Reader:
    """The function that reads this trial's lines. A wrong filter raises ValueError here, once, not at every line."""
    if reading.format == "text":
        return _text_reader(reading)
    parse = _json if reading.format == "json" else _dict
    # a progress bar rewrites its line with \r: each piece is a line of its own
    return lambda line: [seen for part in line.split("\r") for seen in _record(parse(part), reading)]


def _record(record: Mapping[str, object] | None, reading: Reading) -> list[Seen]:
    if record is None:
        return []
    step = _number(_lookup(record, reading.step_key))
    others = tuple(
        Other(metric, step, number)
        for metric in reading.additional
        if (number := _number(_lookup(record, metric))) is not None
    )
    value = _number(_lookup(record, reading.metric))
    if value is None:
        # its step announces no value of the objective: records are whole, a later one has a step of its own
        return [Seen(None, None, others)] if others else []
    return [Seen(step, value, others)]


def _lookup(record: Mapping[str, object], key: str) -> object:
    """The key itself, else a path of keys with dots."""
    if key in record:
        return record[key]
    here: object = record
    for part in key.split("."):
        if not isinstance(here, Mapping) or part not in here:
            return None
        here = here[part]
    return here


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:  # a whole number with more digits than a float can hold
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def _braces(line: str) -> str | None:
    """The text from the first { to the last }: a progress bar or a logger's prefix may stand before it."""
    begin, end = line.find("{"), line.rfind("}")
    return line[begin : end + 1] if 0 <= begin < end else None


def _json(line: str) -> Mapping[str, object] | None:
    text = _braces(line)
    if text is None:
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _dict(line: str) -> Mapping[str, object] | None:
    text = _braces(line)
    if text is None:
        return None
    # nan and inf are no literals: as strings they become floats in _number
    text = _NOT_LITERAL.sub(lambda match: f"'{match.group(1)}{match.group(2)}'", text)
    try:
        record = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return record if isinstance(record, dict) else None


def _text_reader(reading: Reading) -> Reader:
    pattern = re.compile(reading.filter or DEFAULT_FILTER, 0 if reading.filter else re.IGNORECASE)
    missing = {"name", "value"} - set(pattern.groupindex)
    if missing:
        groups = " and ".join(sorted(missing))
        raise ValueError(
            f"metrics.filter: {reading.filter!r} has no group {groups}; write (?P<name>...) and (?P<value>...)"
        )
    # "Epoch 3/10", "epoch [3]": common, and no name=value
    loose = re.compile(rf"(?<![\w.]){re.escape(reading.step_key)}\s*[=:#\[(]?\s*(\d+(?:\.\d+)?)", re.IGNORECASE)

    wanted = frozenset(reading.additional)

    def read(line: str) -> list[Seen]:
        seen: list[Seen] = []
        for part in line.split("\r"):
            step = value = None
            further: dict[str, float] = {}
            for match in pattern.finditer(part):
                name = match.group("name")
                if name == reading.metric:
                    value = _number(match.group("value"))
                elif name == reading.step_key:
                    step = _number(match.group("value"))
                elif name in wanted and (number := _number(match.group("value"))) is not None:
                    further[name] = number
            if step is None and (found := loose.search(part)):
                step = _number(found.group(1))
            if step is not None or value is not None or further:
                seen.append(Seen(step, value, tuple(Other(name, step, number) for name, number in further.items())))
        return seen

    return read
