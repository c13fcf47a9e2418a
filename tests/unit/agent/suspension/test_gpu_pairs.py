"""The GPU map of each process of a trial, by its container's note."""

from __future__ import annotations

import pytest

from podium_suspension.gpu_state_notes import GpuStateNote, gpu_pairs, note_after_restore

TWO = GpuStateNote(held={"a": 1, "b": 2}, current_gpus={1: {"a": "a"}, 2: {"b": "b"}, 3: {"a": "a", "b": "b"}})
CAME = GpuStateNote(held={"x": 1, "y": 2}, gpu_map={"old-x": "x", "old-y": "y"}, processes=2)
OLDER = GpuStateNote(held={"a": 1})


@pytest.mark.parametrize(
    ("note", "pid", "gpu_map", "expected"),
    [
        pytest.param(TWO, 1, {}, {"a": "a"}, id="home"),
        pytest.param(TWO, 1, {"a": "c", "b": "d"}, {"a": "c"}, id="its own GPU alone"),
        pytest.param(TWO, 3, {"a": "b", "b": "a"}, {"a": "b", "b": "a"}, id="on both"),
        pytest.param(OLDER, 7, {"a": "c"}, {"a": "c"}, id="a note of an older agent"),
        pytest.param(CAME, 7, {}, {"old-x": "x", "old-y": "y"}, id="from another node"),
        pytest.param(CAME, 7, {"x": "z"}, {"old-x": "z", "old-y": "y"}, id="and sent to another GPU"),
    ],
)
def test_gpu_pairs_of_a_process(
    note: GpuStateNote, pid: int, gpu_map: dict[str, str], expected: dict[str, str]
) -> None:
    assert gpu_pairs(note, pid, gpu_map) == expected


@pytest.mark.parametrize(
    ("note", "gpu_map", "again", "expected"),
    [
        pytest.param(TWO, {"a": "b", "b": "a"}, {}, {"b": "a"}, id="home again"),
        pytest.param(TWO, {"a": "b", "b": "a"}, {"a": "b", "b": "a"}, {"b": "b"}, id="it is there already"),
        pytest.param(TWO, {"a": "b"}, {"a": "c"}, {"b": "c"}, id="a third one"),
        pytest.param(CAME, {}, {}, {"x": "x", "y": "y"}, id="it has come"),
    ],
)
def test_a_restored_process_is_mapped_from_its_current_gpus(
    note: GpuStateNote, gpu_map: dict[str, str], again: dict[str, str], expected: dict[str, str]
) -> None:
    after = note_after_restore(note, [1], gpu_map)
    assert gpu_pairs(after, 1, again) == expected
    assert gpu_pairs(after, 2, again) == gpu_pairs(note, 2, again), "the other was not asked"
    assert after.is_split == (note is CAME or any(home != now for home, now in after.current_gpus[1].items()))
    assert GpuStateNote.model_validate_json(after.model_dump_json()) == after
