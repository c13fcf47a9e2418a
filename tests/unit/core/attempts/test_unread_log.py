"""A log that yields no value is reported after half a minute, with a reason and its last lines, until a value comes."""

from __future__ import annotations

from podium_core.attempts.unread_log import AFTER, KEPT, UnreadLogNotes
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import LogLine

METRICS = MetricsConfig.model_validate(
    {"metric": "acc", "direction": "maximize", "container": "train", "format": "text", "stepKey": "epoch"}
)


def lines(*texts: str) -> list[LogLine]:
    return [LogLine(0.0, "stdout", text, 0, 0) for text in texts]


def test_nothing_is_reported_before_half_a_minute() -> None:
    notes = UnreadLogNotes(METRICS)
    assert notes.report(1000.0) is None, "no line was read"
    notes.add(lines("hello"), 5.0)
    assert notes.report(5.0 + AFTER - 1) is None


def test_the_reason_is_that_of_the_newest_line_with_the_metric() -> None:
    notes = UnreadLogNotes(METRICS)
    notes.add(lines("acc went up", "acc=1,234", *["noise"] * 4, ""), 0.0)
    notes.add([], 1.0)
    report = notes.report(AFTER)
    assert report is not None
    assert (report.lines, report.last) == (7, ["noise"] * (KEPT - 1)), "an empty line is not shown"
    assert report.reason == "acc is followed by '1,234', which is not a number with one meaning"


def test_a_log_that_never_names_the_metric() -> None:
    notes = UnreadLogNotes(METRICS)
    notes.add(lines("accuracy=0.5", "loss=1"), 0.0)
    report = notes.report(AFTER)
    assert report is not None
    assert report.reason == "no line names acc"


def test_the_report_changes_only_when_the_lines_have_doubled() -> None:
    notes = UnreadLogNotes(METRICS)
    notes.add(lines("a", "b"), 0.0)
    first = notes.report(AFTER)
    notes.add(lines("c"), AFTER)
    assert notes.report(AFTER) is first
    notes.add(lines("d"), AFTER)
    second = notes.report(AFTER)
    assert second is not None
    assert (second.lines, second.last) == (4, ["b", "c", "d"])
