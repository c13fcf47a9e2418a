"""The GPU map of each process of a trial, by its container's note."""

from __future__ import annotations

import pytest

from podium_agent.suspension.gpu_maps import pairs, restored
from podium_agent.suspension.parked_memory import Note

TWO = Note(held={"a": 1, "b": 2}, ranks={1: {"a": "a"}, 2: {"b": "b"}, 3: {"a": "a", "b": "b"}})
CAME = Note(held={"x": 1, "y": 2}, onto={"old-x": "x", "old-y": "y"}, processes=2)
OLDER = Note(held={"a": 1})


@pytest.mark.parametrize(
    ("note", "pid", "onto", "expected"),
    [
        pytest.param(TWO, 1, {}, {"a": "a"}, id="home"),
        pytest.param(TWO, 1, {"a": "c", "b": "d"}, {"a": "c"}, id="its own GPU alone"),
        pytest.param(TWO, 3, {"a": "b", "b": "a"}, {"a": "b", "b": "a"}, id="on both"),
        pytest.param(OLDER, 7, {"a": "c"}, {"a": "c"}, id="a note of an older agent"),
        pytest.param(CAME, 7, {}, {"old-x": "x", "old-y": "y"}, id="from another node"),
        pytest.param(CAME, 7, {"x": "z"}, {"old-x": "z", "old-y": "y"}, id="and sent to another GPU"),
    ],
)
def test_the_pairs_of_a_process(note: Note, pid: int, onto: dict[str, str], expected: dict[str, str]) -> None:
    assert pairs(note, pid, onto) == expected


@pytest.mark.parametrize(
    ("note", "onto", "again", "expected"),
    [
        pytest.param(TWO, {"a": "b", "b": "a"}, {}, {"b": "a"}, id="home again"),
        pytest.param(TWO, {"a": "b", "b": "a"}, {"a": "b", "b": "a"}, {"b": "b"}, id="it is there already"),
        pytest.param(TWO, {"a": "b"}, {"a": "c"}, {"b": "c"}, id="a third one"),
        pytest.param(CAME, {}, {}, {"x": "x", "y": "y"}, id="it has come"),
    ],
)
def test_who_made_a_restore_is_mapped_from_where_it_is_then(
    note: Note, onto: dict[str, str], again: dict[str, str], expected: dict[str, str]
) -> None:
    after = restored(note, [1], onto)
    assert pairs(after, 1, again) == expected
    assert pairs(after, 2, again) == pairs(note, 2, again), "the other was not asked"
    assert after.apart == (note is CAME or any(home != now for home, now in after.ranks[1].items()))
    assert Note.model_validate_json(after.model_dump_json()) == after
