"""Rows of a CSV table that another tool exported: Excel, pandas, R, or a tracker of experiments.

The separator is a comma, a semicolon or a tab. Names and fields are stripped of blanks. Empty lines, and lines with
only separators, are skipped. A row may hold line ends within quotation marks, in bounded number.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from podium_core.domain.phrases import one_line

MAX_ROW = 1 << 20  # characters of one row
MAX_SHOWN = 60  # characters of a field that a message shows
SEPARATORS = (",", ";", "\t")
MISSING = frozenset({"", "-", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "nil"})  # as tools write no value
_EXCEL = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # first line by which Excel names the separator
_UNNAMED = re.compile(r"(unnamed: ?\d+(_level_\d+)?)?", re.IGNORECASE)  # pandas' index, and what it calls one
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?", re.ASCII)


class TableError(ValueError):
    """A table that cannot be read. `line` is 0 where no line is at fault; the text includes the cure."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(one_line(text))
        self.line = line


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its last line in the file, and its fields."""

    line: int
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the names of its header, the separator, and the rows, which can be read once."""

    names: tuple[str, ...]
    separator: str
    rows: Iterator[Row]

    def column(self, name: str) -> int | None:
        """Return the position of the column with this name, in any case of letters; None if there is none."""
        lowered = [one.lower() for one in self.names]
        return lowered.index(name) if name in lowered else None


def shown(text: object) -> str:
    """Return a field as a message shows it: quoted, short, on one line."""
    whole = repr(text)
    return whole if len(whole) <= MAX_SHOWN else f"{whole[: MAX_SHOWN - 3]}..."


def unnamed(name: str) -> bool:
    """Return whether a column has no name of its own, as the index that pandas writes."""
    return _UNNAMED.fullmatch(name) is not None


def open_table(lines: Iterable[str], known: Collection[str]) -> Table:
    """Return the table in these lines; the first line that is not empty is the header.

    `known`: names, in lower case, by which the separator is recognised. Raises TableError, also while rows are read.
    """
    source = _Lines(iter(lines))
    header = next((line for line in source if line.strip().strip(",;")), "").lstrip("\ufeff")
    given = _EXCEL.fullmatch(header.rstrip("\r\n"))
    if given is not None:
        header = next(source, "")
    separator = given[1] if given is not None else _separator(header, known)
    rows = _rows(source, header, separator)
    names = next(rows, Row(1, ())).fields
    repeated = [
        name for name, times in Counter(name.lower() for name in names if not unnamed(name)).items() if times > 1
    ]
    if repeated:
        text = f"its header names {', '.join(map(shown_name, repeated))} more than once"
        raise TableError(f"{text}; give each column a name of its own, or leave one out")
    return Table(names, separator, rows)


def shown_name(name: str) -> str:
    """Return the name of a column as a message shows it."""
    return name if name.isprintable() and len(name) <= MAX_SHOWN else shown(name)


@dataclass(slots=True)
class Numbers:
    """Reader of the numbers of one table; decimal commas need another separator than a comma.

    A table with both decimal commas and decimal points is refused: 1.234 may be a thousand or one.
    """

    separator: str
    _seen: dict[str, str] = field(default_factory=dict)  # a number by its decimal mark

    @property
    def comma(self) -> bool:
        """Return whether the table writes decimal commas."""
        return "," in self._seen

    def __call__(self, text: str) -> float:
        """Return the number; raise ValueError that says why there is none."""
        mark = "." if "." in text else ","
        if self.separator != "," and _DECIMAL_COMMA.fullmatch(text):
            number = float(text.replace(",", "."))
        elif "_" in text:
            raise ValueError(f"{shown(text)} is not a number; write one such as 0.5")
        else:
            try:
                number = float(text)
            except ValueError:
                raise ValueError(f"{shown(text)} is not a number; write one such as 0.5") from None
        if mark in text:
            self._seen.setdefault(mark, text)
            if len(self._seen) > 1:
                both = f"{shown(self._seen['.'])} and {shown(self._seen[','])}"
                raise ValueError(f"{both} are both in the table, with different decimal marks; write decimal points")
        return number

    def optional(self, text: str) -> float:
        """Return the number; NaN for an empty field, and for the words that tools write for a missing value."""
        return math.nan if text.lower() in MISSING else self(text)


@dataclass(slots=True)
class _Lines:
    """Counted lines, with a limit on the characters since `characters` was last set to 0."""

    source: Iterator[str]
    number: int = 0
    characters: int = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self.source)
        self.number += 1
        self.characters += len(line)
        if self.characters > MAX_ROW:
            text = f"the row is longer than {MAX_ROW} characters; close each quotation mark"
            raise TableError(text, self.number)
        if "\0" in line:
            raise TableError("the row holds a NUL byte; save the table as UTF-8 text", self.number)
        return line


def _separator(header: str, known: Collection[str]) -> str:
    """Return the separator that finds the most known names in the header; a comma where none finds more."""

    def found(separator: str) -> int:
        try:
            names = next(csv.reader([header], delimiter=separator, skipinitialspace=True), [])
        except csv.Error:
            return 0
        return len({name.strip().lower() for name in names} & set(known))

    return max(SEPARATORS, key=found)


def _rows(source: _Lines, header: str, separator: str) -> Iterator[Row]:
    def lines() -> Iterator[str]:
        yield header
        yield from source

    reader = csv.reader(lines(), delimiter=separator, skipinitialspace=True)
    try:
        for row in reader:
            source.characters = 0
            fields = tuple(text.strip() for text in row)
            if any(fields):
                yield Row(max(source.number, 1), fields)
    except csv.Error as error:
        raise TableError(f"the row is not valid CSV ({error}); close each quotation mark", source.number) from None


def named(table: Table, row: Row, columns: Sequence[int]) -> tuple[str, ...]:
    """Return the fields of these columns. Raises TableError where they are missing or the row is too long."""
    beyond = [text for text in row.fields[len(table.names) :] if text]
    if beyond:
        text = f"more fields than the header names ({shown(beyond[0])}); quote those with a comma, write 0.5 for 0,5"
        raise TableError(text, row.line)
    if len(row.fields) <= max(columns, default=-1):
        missing = ", ".join(table.names[column] for column in columns if column >= len(row.fields))
        raise TableError(f"fewer fields than the header names: {missing} is missing; complete the line", row.line)
    return tuple(row.fields[column] for column in columns)
