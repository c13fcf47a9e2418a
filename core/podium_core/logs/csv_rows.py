"""Rows of a CSV file that grows: the first line names the columns, each later line is one report.

The separator is the comma, semicolon or tab that separates a wanted name in the header. A later line that equals a
header is one: a script that continues a file may write it again. A quoted field ends on its line.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

from podium_core.logs.printed_numbers import number_of_text
from podium_core.logs.readings import AdditionalValue, MetricsFormat, ParsedLine

MAX_ROW = 1 << 16  # characters of a row that are read
MAX_COLUMNS = 4096
SEPARATORS = (",", ";", "\t")


class CsvReader:
    """Reader of rows; its first line is the header. A reader of a new file is a new reader."""

    def __init__(self, metrics: MetricsFormat) -> None:
        self._metrics = metrics
        self._separator = ","
        self._columns: dict[str, int] = {}

    def __call__(self, line: str) -> list[ParsedLine]:
        """Return what the next row reports; a header reports nothing."""
        line = line.removeprefix("\ufeff").rstrip("\r\n")
        if not line.strip() or len(line) > MAX_ROW:
            return []
        if not self._columns or self._is_header(line):
            self._begin(line)
            return []
        fields = _fields(line, self._separator)
        step, value = self._number(fields, self._metrics.step_key), self._number(fields, self._metrics.metric)
        additional = tuple(
            AdditionalValue(name, step, number)
            for name in self._metrics.additional
            if (number := self._number(fields, name)) is not None
        )
        if value is not None:
            return [ParsedLine(step, value, additional)]
        return [ParsedLine(None, None, additional)] if additional else []

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns; empty before the header was read."""
        return tuple(self._columns)

    def _begin(self, line: str) -> None:
        wanted = {self._metrics.metric, self._metrics.step_key, *self._metrics.additional}
        rows = {mark: _fields(line, mark) for mark in SEPARATORS}
        self._separator = max(SEPARATORS, key=lambda mark: (len(wanted & {*rows[mark]}), len(rows[mark])))
        self._columns = {name: number for number, name in enumerate(rows[self._separator])}

    def _is_header(self, line: str) -> bool:
        return self._metrics.metric in line and self._metrics.metric in _fields(line, self._separator)

    def _number(self, fields: Sequence[str], name: str) -> float | None:
        column = self._columns.get(name)
        if column is None or column >= len(fields):
            return None
        return number_of_text(fields[column], counter=name == self._metrics.step_key)


def _fields(line: str, separator: str) -> list[str]:
    """Return the fields of one row without blanks around them; a row that is not CSV is split at each separator."""
    try:
        row = next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # a NUL, or a field longer than the module reads
        row = line.split(separator, MAX_COLUMNS)
    return [field.strip() for field in row[:MAX_COLUMNS]]
