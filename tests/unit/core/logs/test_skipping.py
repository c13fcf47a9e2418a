"""A line on which the parser fails is skipped; a parser that fails on every line is not hidden."""

from __future__ import annotations

import pytest

from podium_core.attempts import unread_log
from podium_core.attempts.unread_log import UnreadLogNotes
from podium_core.curves.growing_curve import Line
from podium_core.logs.readings import ParsedLine
from podium_core.logs.skipping import SkippingReader
from podium_core.schema.metrics.config import MetricsConfig


def parse(line: str) -> list[ParsedLine]:
    if line == "memory":
        raise MemoryError
    return [ParsedLine(None, 1 / float(line))]


def test_only_consecutive_failures_count_against_the_limit() -> None:
    read = SkippingReader(parse, 2)
    assert read.explain() == ""
    assert [read(line) for line in ("0", "x", "2", "0", "0")] == [[], [], [ParsedLine(None, 0.5)], [], []]
    assert read.skipped == 4
    with pytest.raises(ZeroDivisionError):
        read("0")
    assert read("4") == [ParsedLine(None, 0.25)]
    expected = "the reader failed on 4 lines and skipped them, at last for ZeroDivisionError('float division by zero')"
    assert read.explain() == expected


def test_without_a_limit_every_line_is_skipped() -> None:
    read = SkippingReader(parse)
    assert [read("0") for _ in range(5000)] == [[]] * 5000
    assert read("1") == [ParsedLine(None, 1.0)]


def test_a_process_short_of_memory_does_not_skip_the_line() -> None:
    with pytest.raises(MemoryError):
        SkippingReader(parse)("memory")


def test_a_line_that_cannot_be_explained_does_not_end_the_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise RecursionError("too deep")

    monkeypatch.setattr(unread_log, "reason_of", fail)
    monkeypatch.setattr(unread_log, "AFTER", 0.0)
    notes = UnreadLogNotes(MetricsConfig.model_validate({"metric": "acc", "direction": "maximize", "container": "m"}))
    notes.add([Line(0.0, "acc is 3")], 0.0)
    report = notes.report(0.0)
    assert report is not None
    assert report.reason == "the reader failed on a line with acc: RecursionError('too deep')"
