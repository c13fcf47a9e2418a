"""Parsers of printed lines into steps and values: JSON, text by a pattern, Hugging Face dicts. Pure.

The agent uses them for the logs on its node, the operator for trials without a GPU, which may run on a node without an
agent. A line without the job's metrics gives nothing and is never an error: logs hold anything. The additional metrics
that are asked for never change what is read of the objective.
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


class MetricsFormat(Protocol):
    """How to read one trial's log: `schema.metrics_config.MetricsReading`, or any object like it."""

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
    """What one line reports: a step alone (the value follows on a later line), a value alone, or both.

    Step and value are both None on a line that reports only additional metrics.
    """

    step: float | None
    value: float | None
    additional: tuple[AdditionalValue, ...] = ()


Reader = Callable[[str], list[ParsedLine]]


def line_reader(metrics: MetricsFormat) -> Reader:
    """Return the function that parses this trial's lines.

    Raises ValueError for a wrong filter here, once, instead of at every line.
    """
    if metrics.format == "text":
        return _text_reader(metrics)
    parse = _json if metrics.format == "json" else _dict
    # A progress bar rewrites its line with \r: each piece is a line of its own.
    return lambda line: [parsed for part in line.split("\r") for parsed in _record(parse(part), metrics)]


def _record(record: Mapping[str, object] | None, metrics: MetricsFormat) -> list[ParsedLine]:
    if record is None:
        return []
    step = _number(_lookup(record, metrics.step_key))
    additional = tuple(
        AdditionalValue(metric, step, number)
        for metric in metrics.additional
        if (number := _number(_lookup(record, metric))) is not None
    )
    value = _number(_lookup(record, metrics.metric))
    if value is None:
        # The step announces no value of the objective: records are complete, and a later record has its own step.
        return [ParsedLine(None, None, additional)] if additional else []
    return [ParsedLine(step, value, additional)]


def _lookup(record: Mapping[str, object], key: str) -> object:
    """Return the value of the key itself, else of a path of keys with dots."""
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
        except OverflowError:  # an integer with more digits than a float can hold
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def _braces(line: str) -> str | None:
    """Return the text from the first { to the last }; a progress bar or a logger's prefix may precede it."""
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
    # nan and inf are not literals; as strings, `_number` turns them into floats.
    text = _NOT_LITERAL.sub(lambda match: f"'{match.group(1)}{match.group(2)}'", text)
    try:
        record = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return record if isinstance(record, dict) else None


def _text_reader(metrics: MetricsFormat) -> Reader:
    pattern = re.compile(metrics.filter or DEFAULT_FILTER, 0 if metrics.filter else re.IGNORECASE)
    missing = {"name", "value"} - set(pattern.groupindex)
    if missing:
        groups = " and ".join(sorted(missing))
        raise ValueError(
            f"metrics.filter: {metrics.filter!r} has no group {groups}; write (?P<name>...) and (?P<value>...)"
        )
    # "Epoch 3/10" and "epoch [3]" are common and hold no name=value
    loose = re.compile(rf"(?<![\w.]){re.escape(metrics.step_key)}\s*[=:#\[(]?\s*(\d+(?:\.\d+)?)", re.IGNORECASE)

    wanted = frozenset(metrics.additional)

    def read(line: str) -> list[ParsedLine]:
        parsed: list[ParsedLine] = []
        for part in line.split("\r"):
            step = value = None
            further: dict[str, float] = {}
            for match in pattern.finditer(part):
                name = match.group("name")
                if name == metrics.metric:
                    value = _number(match.group("value"))
                elif name == metrics.step_key:
                    step = _number(match.group("value"))
                elif name in wanted and (number := _number(match.group("value"))) is not None:
                    further[name] = number
            if step is None and (found := loose.search(part)):
                step = _number(found.group(1))
            if step is not None or value is not None or further:
                parsed.append(
                    ParsedLine(
                        step, value, tuple(AdditionalValue(name, step, number) for name, number in further.items())
                    )
                )
        return parsed

    return read
