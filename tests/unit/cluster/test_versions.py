"""Which events are news for a cache."""

from __future__ import annotations

import pytest

from podium_cluster.versions import EventVerdict, SeenVersions, is_older

A = ("default", "a")


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("9" * 30, "1" + "0" * 30, True),
        ("", "10", False),
        ("09", "10", False),
        ("0", "10", False),
        ("x9", "x10", False),
        ("٩", "10", False),
        ("9", "abc", False),
    ],
)
def test_only_decimal_numbers_are_ordered(version: str, than: str, older: bool) -> None:
    assert is_older(version, than) is older


@pytest.mark.parametrize(
    ("events", "verdicts"),
    [
        ([("11", False), ("11", False), ("12", False)], [EventVerdict.NEWS, EventVerdict.OLD, EventVerdict.NEWS]),
        ([("12", False), ("11", False)], [EventVerdict.NEWS, EventVerdict.OLD]),
        ([("12", True), ("11", False), ("13", False)], [EventVerdict.NEWS, EventVerdict.OLD, EventVerdict.NEWS]),
        ([("11", False), ("11", True), ("11", True)], [EventVerdict.NEWS, EventVerdict.NEWS, EventVerdict.OLD]),
        ([("13", False), ("12", True)], [EventVerdict.NEWS, EventVerdict.OLD]),
        ([("9", False), ("9", True)], [EventVerdict.OLD, EventVerdict.OLD]),
        ([("x2", False), ("x1", False), ("x1", False)], [EventVerdict.NEWS, EventVerdict.NEWS, EventVerdict.OLD]),
    ],
    ids=["duplicate", "older", "after a deletion", "deletion", "recreated", "before the list", "opaque"],
)
def test_events_of_one_object(events: list[tuple[str, bool]], verdicts: list[EventVerdict]) -> None:
    seen = SeenVersions("10")
    assert [seen.add(A, version, deleted=deleted) for version, deleted in events] == verdicts


def test_an_event_after_a_later_one_is_late() -> None:
    seen = SeenVersions("10", {A: "8"})
    assert seen.add(("default", "b"), "12", deleted=False) is EventVerdict.NEWS
    assert seen.add(A, "11", deleted=False) is EventVerdict.LATE
    assert seen.bookmark("11") is EventVerdict.LATE
    assert seen.newest == "12"
    assert seen.bookmark("20") is EventVerdict.NEWS
    assert seen.newest == "20"
