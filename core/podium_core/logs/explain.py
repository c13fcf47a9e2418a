"""Reason why a log line has no value, for `podium validate --log` and for the condition of a trial without values.

It reads the line once more with the same readers, so that it never contradicts them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from podium_core.logs.budget import LineBudget
from podium_core.logs.line_reader import MetricsFormat, ParsedLine, line_reader
from podium_core.logs.printed_numbers import printed_number
from podium_core.logs.records import paths_of, records
from podium_core.logs.screen import pieces

MAX_SHOWN = 120  # characters of a line that a message shows
MAX_KEPT = 5  # lines of each kind that a report keeps


@dataclass(frozen=True, slots=True)
class ReadLine:
    """A line with values: its number, from 1, and what was read."""

    number: int
    parsed: tuple[ParsedLine, ...]


@dataclass(frozen=True, slots=True)
class UnreadLine:
    """A line that names the metric and yields no value: its number, from 1, its text, and why."""

    number: int
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class LogReport:
    """Report of a log: counts of lines, the first lines with a value, the first that only name the metric."""

    lines: int
    read_count: int
    read: tuple[ReadLine, ...]
    unread_count: int
    unread: tuple[UnreadLine, ...]
    last: tuple[str, ...]  # the last lines that are not empty


def shown(text: str) -> str:
    """Return the beginning of a line as one printable line."""
    plain = " ".join("".join(pieces(text)[-1:]).split())
    printable = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in plain)
    return printable if len(printable) <= MAX_SHOWN else printable[: MAX_SHOWN - 3] + "..."


def reason_of(line: str, metrics: MetricsFormat) -> str | None:
    """Return why a line that names the metric yields no value of it; None where it names it nowhere."""
    metric = metrics.metric
    if metric not in line:
        return None
    named = re.compile(rf"(?<![\w./-]){re.escape(metric)}(?![\w./-])")  # not a part of another name
    found = ((piece, named.search(piece)) for piece in reversed(pieces(line)))
    text, place = next(((piece, match) for piece, match in found if match is not None), ("", None))
    if place is None:
        return None
    after = text[place.end() :].lstrip("\"' ")
    if metrics.format == "csv":
        return f"the column {metric} has held no number yet"  # only the first line, with the names, holds the name
    if metrics.format == "text":
        return _reason_in_text(after, metrics)
    what = "JSON object" if metrics.format == "json" else "dictionary"
    if "{" not in text:
        return f"the line holds no {what}; metrics.format is {metrics.format}"
    if not records(text, dict.fromkeys(paths_of(metric), False), LineBudget()):
        return f"the {what} does not end on this line, or its brackets do not match"
    value = shown(after.lstrip("\"': ")[:24])
    return f"{metric} is not a key of the {what}, or its value is not a number: {value!r}"


def _reason_in_text(after: str, metrics: MetricsFormat) -> str:
    if metrics.filter is not None:
        return f"metrics.filter does not find {metrics.metric} with a number that has one meaning"
    if not after.startswith(("=", ":")):
        return f"{metrics.metric} is not followed by = or :"
    if printed_number(after[1:].lstrip()) is not None:
        return f"{metrics.metric} is a best, target or earlier value on this line, not the value of a step"
    return f"{metrics.metric} is followed by {shown(after[1:25])!r}, which is not a number with one meaning"


class ExplainedReader:
    """Reader of a log's lines that also notes which of them yield a value, and why others do not."""

    def __init__(self, metrics: MetricsFormat) -> None:
        """Raise ValueError where metrics.filter is invalid."""
        self._metrics = metrics
        self._parse = line_reader(metrics)
        self._read: list[ReadLine] = []
        self._unread: list[UnreadLine] = []
        self._last: list[str] = []
        self._lines = self._read_count = self._unread_count = 0

    def __call__(self, line: str) -> list[ParsedLine]:
        """Return what the next line of the log reports."""
        self._lines += 1
        parsed = self._parse(line)
        if any(one.value is not None for one in parsed):
            self._read_count += 1
            if len(self._read) < MAX_KEPT:
                self._read.append(ReadLine(self._lines, tuple(parsed)))
        elif self._metrics.format != "csv" and (reason := reason_of(line, self._metrics)) is not None:
            self._unread_count += 1
            if len(self._unread) < MAX_KEPT:
                self._unread.append(UnreadLine(self._lines, shown(line), reason))
        if line.strip():
            self._last = [*self._last[-MAX_KEPT + 1 :], shown(line)]
        return parsed

    def report(self) -> LogReport:
        """Return the report of all lines so far."""
        return LogReport(
            self._lines,
            self._read_count,
            tuple(self._read),
            self._unread_count,
            tuple(self._unread),
            tuple(self._last),
        )
