"""From a line that a trial printed to (step, value): JSON, text by a regular expression, or Hugging Face's dicts. Pure.

Used by the agent for the logs on its node, by the operator for trials without a GPU, which may run where no agent is.
A line that says nothing of the metric gives nothing, never an error: logs hold anything.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping
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


@dataclass(frozen=True, slots=True)
class Seen:
    """What one line said: a step alone (the value follows on a later line), a value alone, or both."""

    step: float | None
    value: float | None


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
    value = _number(_lookup(record, reading.metric))
    if value is None:
        return []
    return [Seen(_number(_lookup(record, reading.step_key)), value)]


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
        # a whole number may have more digits than a float can hold
        return float(value) if abs(value) < 1e308 or not math.isfinite(value) else math.inf
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

    def read(line: str) -> list[Seen]:
        seen: list[Seen] = []
        for part in line.split("\r"):
            step = value = None
            for match in pattern.finditer(part):
                if match.group("name") == reading.metric:
                    value = _number(match.group("value"))
                elif match.group("name") == reading.step_key:
                    step = _number(match.group("value"))
            if step is None and (found := loose.search(part)):
                step = _number(found.group(1))
            if step is not None or value is not None:
                seen.append(Seen(step, value))
        return seen

    return read
