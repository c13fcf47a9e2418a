"""Typed access to the fields of another tool's object. All problems are collected, and no field is dropped silently.

A reader takes each field that it knows, then calls `finish`, which refuses every other field by name. Nothing here
raises for what a file holds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from podium_core.domain.phrases import one_line
from podium_core.schema.rules import Refusal

Manifest = dict[str, Any]
MAX_PROBLEMS = 64  # refusals, and notes, of one search
MAX_DEPTH, MAX_VALUES = 64, 200_000  # of the documents of a file; a manifest of 1.5 MiB has fewer values
LONGEST_SHOWN, LONGEST_PATH = 60, 200  # characters of a value and of a path in a message
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Note:
    """A change of meaning: the field of the source, and a sentence that says what is different in Podium."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


@dataclass(slots=True)
class Report:
    """The refusals and notes of one search, at most MAX_PROBLEMS of each."""

    refusals: list[Refusal] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def refuse(self, where: str, message: str, code: str = "NotConvertible") -> None:
        """Add a refusal; `message` names the value and the cure."""
        refusal = Refusal(code, one_line(where[:LONGEST_PATH]), one_line(message))
        if len(self.refusals) < MAX_PROBLEMS and refusal not in self.refusals:
            self.refusals.append(refusal)

    def note(self, where: str, message: str) -> None:
        """Add a note about a change of meaning, once."""
        note = Note(one_line(where[:LONGEST_PATH]), one_line(message))
        if len(self.notes) < MAX_PROBLEMS and note not in self.notes:
            self.notes.append(note)


def shown(value: Any) -> str:
    """Return a value for a message, cut to LONGEST_SHOWN characters."""
    if isinstance(value, str):
        value = value[: LONGEST_SHOWN + 1]
    if isinstance(value, (Mapping, list)) and len(value) > 8:
        return f"{'a map' if isinstance(value, Mapping) else 'a list'} of {len(value)} entries"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


def too_large(value: Any) -> bool:
    """Return whether a value has more parts, or is nested deeper, than any manifest of Kubernetes."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    count = 0
    while waiting:
        one, depth = waiting.pop()
        count += 1
        if depth > MAX_DEPTH or count > MAX_VALUES:
            return True
        if isinstance(one, Mapping):
            waiting.extend((inner, depth + 1) for inner in one.values())
        elif isinstance(one, list):
            waiting.extend((inner, depth + 1) for inner in one)
    return False


def number_of(value: Any) -> int | float | None:
    """Return the number that a value or its text holds; None if it holds none. A whole number is an int."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if len(value) > LONGEST_SHOWN or _NUMBER.fullmatch(value.strip()) is None:
            return None
        value = float(value)
    if isinstance(value, int):
        return value if abs(value) <= 10**300 else None
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


class Fields:
    """The fields of one object of a source."""

    def __init__(self, value: Any, path: str, report: Report) -> None:
        """Read `value`, which is at `path`; a value that is not a map is refused."""
        self.path, self.report = path, report
        self._values: Mapping[str, Any] = {}
        self._known: set[str] = set()
        if isinstance(value, Mapping):
            self._values = value
        elif value is not None:
            report.refuse(path, f"must be a map of fields, not {shown(value)}", "InvalidValue")

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def raw(self, name: str) -> Any:
        """Return a field as it is; None if it is missing."""
        self._known.add(name)
        return self._values.get(name)

    def ignore(self, *names: str) -> None:
        """Accept fields that have no meaning for the converted job."""
        self._known.update(names)

    def unsupported(self, name: str, cure: str) -> None:
        """Refuse a field if it is given; `cure` says why and what to do."""
        value = self.raw(name)
        if value not in (None, [], {}, False, ""):
            self.report.refuse(self.at(name), f"{shown(value)} cannot be converted: {cure}")

    def text(self, name: str, *, required: bool = False) -> str | None:
        """Return a text; a number or another value is refused."""
        value = self._given(name, required)
        if value is None or isinstance(value, str):
            return value
        self.report.refuse(self.at(name), f"must be a string (in quotes), not {shown(value)}", "InvalidValue")
        return None

    def number(self, name: str, *, required: bool = False) -> int | float | None:
        """Return a number, which may be written as a text."""
        value = self._given(name, required)
        number = number_of(value)
        if value is not None and number is None:
            self.report.refuse(self.at(name), f"must be a finite number, not {shown(value)}", "InvalidValue")
        return number

    def whole(self, name: str, least: int, *, required: bool = False) -> int | None:
        """Return a whole number of at least `least`, which may be written as a text."""
        value = self._given(name, required)
        number = number_of(value)
        if value is None or (isinstance(number, int) and number >= least):
            return number if isinstance(number, int) else None
        text = f"must be a whole number of at least {least}, not {shown(value)}"
        self.report.refuse(self.at(name), text, "InvalidValue")
        return None

    def choice(self, name: str, *choices: str, required: bool = False) -> str | None:
        """Return a text that is one of `choices`."""
        value = self.text(name, required=required)
        if value is None or value in choices:
            return value
        self.report.refuse(self.at(name), f"must be {', '.join(choices)}, not {shown(value)}", "InvalidValue")
        return None

    def fields(self, name: str, *, required: bool = False) -> Fields:
        """Return the fields of an object; none if it is missing."""
        return Fields(self._given(name, required), self.at(name), self.report)

    def entries(self, name: str, *, required: bool = False) -> list[tuple[str, Any]]:
        """Return the entries of a list, each with its path."""
        value = self._given(name, required)
        if value is None:
            return []
        if isinstance(value, list):
            return [(f"{self.at(name)}[{number}]", one) for number, one in enumerate(value)]
        self.report.refuse(self.at(name), f"must be a list, not {shown(value)}", "InvalidValue")
        return []

    def objects(self, name: str, *, required: bool = False) -> Iterator[Fields]:
        """Yield the fields of each object of a list."""
        for path, one in self.entries(name, required=required):
            yield Fields(one if one is not None else {}, path, self.report)

    def texts(self, name: str) -> list[tuple[str, str]]:
        """Return the texts of a list, each with its path."""
        found = []
        for path, one in self.entries(name):
            if isinstance(one, str):
                found.append((path, one))
            else:
                self.report.refuse(path, f"must be a string (in quotes), not {shown(one)}", "InvalidValue")
        return found

    def finish(self, tool: str) -> None:
        """Refuse every field that was not read."""
        for name in self._values:
            if name not in self._known:
                text = f"{shown(self._values[name])} is not a field of {tool} that Podium knows: remove it"
                self.report.refuse(self.at(name), text, "UnknownField")

    def _given(self, name: str, required: bool) -> Any:
        value = self.raw(name)
        if value is None and required:
            self.report.refuse(self.at(name), "is required", "Required")
        return value
