"""Reason why a log line has no value, for `podium validate --log` and for the condition of a trial without values.

It reads the line once more with the same readers, so that it never contradicts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from podium_core.logs.budget import Budget
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
    if metrics.format == "text":
        return _reason_in_text(after, metrics)
    what = "JSON object" if metrics.format == "json" else "dictionary"
    if "{" not in text:
        return f"the line holds no {what}; metrics.format is {metrics.format}"
    if not records(text, dict.fromkeys(paths_of(metric), False), Budget()):
        return f"the {what} does not end on this line, or its brackets do not match"
    value = shown(after.lstrip("\"': ")[:24])
    return f"{metric} is not a key of the {what}, or its value is not a number: {value!r}"


def _reason_in_text(after: str, metrics: MetricsFormat) -> str:
    if metrics.filter is not None:
        return f"metrics.filter does not find {metrics.metric} with a number that has one meaning"
    if not after.startswith(("=", ":")):
        return f"{metrics.metric} is not followed by = or :"
    if printed_number(after[1:].lstrip()) is not None:
        return f"{metrics.metric} is a best or target value on this line, not the value of a step"
    return f"{metrics.metric} is followed by {shown(after[1:25])!r}, which is not a number with one meaning"


def explain_log(lines: Iterable[str], metrics: MetricsFormat) -> LogReport:
    """Return what the lines of a log yield. Raises ValueError where metrics.filter is invalid."""
    parse = line_reader(metrics)
    read: list[ReadLine] = []
    unread: list[UnreadLine] = []
    last: list[str] = []
    number = read_count = unread_count = 0
    for number, line in enumerate(lines, 1):
        parsed = parse(line)
        if any(one.value is not None for one in parsed):
            read_count += 1
            if len(read) < MAX_KEPT:
                read.append(ReadLine(number, tuple(parsed)))
        elif (reason := reason_of(line, metrics)) is not None:
            unread_count += 1
            if len(unread) < MAX_KEPT:
                unread.append(UnreadLine(number, shown(line), reason))
        if line.strip():
            last = [*last[-MAX_KEPT + 1 :], shown(line)]
    return LogReport(number, read_count, tuple(read), unread_count, tuple(unread), tuple(last))
