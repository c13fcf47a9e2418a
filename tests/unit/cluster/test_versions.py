"""Which events are news for a cache."""

from __future__ import annotations

import pytest

from podium_cluster.versions import SeenVersions, Verdict, is_older

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
        ([("11", False), ("11", False), ("12", False)], [Verdict.NEWS, Verdict.OLD, Verdict.NEWS]),
        ([("12", False), ("11", False)], [Verdict.NEWS, Verdict.OLD]),
        ([("12", True), ("11", False), ("13", False)], [Verdict.NEWS, Verdict.OLD, Verdict.NEWS]),
        ([("11", False), ("11", True), ("11", True)], [Verdict.NEWS, Verdict.NEWS, Verdict.OLD]),
        ([("13", False), ("12", True)], [Verdict.NEWS, Verdict.OLD]),
        ([("9", False), ("9", True)], [Verdict.OLD, Verdict.OLD]),
        ([("x2", False), ("x1", False), ("x1", False)], [Verdict.NEWS, Verdict.NEWS, Verdict.OLD]),
    ],
    ids=["duplicate", "older", "after a deletion", "deletion", "recreated", "before the list", "opaque"],
)
def test_events_of_one_object(events: list[tuple[str, bool]], verdicts: list[Verdict]) -> None:
    seen = SeenVersions("10")
    assert [seen.add(A, version, deleted=deleted) for version, deleted in events] == verdicts


def test_an_event_after_a_later_one_is_late() -> None:
    seen = SeenVersions("10", {A: "8"})
    assert seen.add(("default", "b"), "12", deleted=False) is Verdict.NEWS
    assert seen.add(A, "11", deleted=False) is Verdict.LATE
    assert seen.bookmark("11") is Verdict.LATE
    assert seen.newest == "12"
    assert seen.bookmark("20") is Verdict.NEWS
    assert seen.newest == "20"
