"""podium.inherit: a copy of another trial's checkpoint is whole, also while that trial writes the next one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from podium import inherit, trial


def folders(tmp_path: Path) -> tuple[Path, Path]:
    parent, child = tmp_path / "parent", tmp_path / "child"
    parent.mkdir()
    child.mkdir()
    return parent, child


def save(folder: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_CHECKPOINT", str(folder))
    trial.save(step, lambda where: (where / "state").write_text(str(step)))


def test_a_named_checkpoint_is_copied_and_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = folders(tmp_path)
    save(parent, 4, monkeypatch)
    (parent / trial.REQUEST).touch()
    inherit.inherit(parent, child, "step-0-parent")
    assert sorted(entry.name for entry in child.iterdir()) == [trial.MARKER, "step-0-parent"]
    assert trial.checkpoint_in(child) == trial.Checkpoint(4, child / "step-0-parent")
    assert (child / "step-0-parent" / "state").read_text() == "4"
    save(child, 5, monkeypatch)
    assert not (child / "step-0-parent").exists(), "the helper removes it as any older checkpoint"
    inherit.inherit(parent, child, "step-0-parent")
    assert trial.checkpoint_in(child) == trial.Checkpoint(5, child / "step-5"), "its own checkpoint remains"


def test_a_checkpoint_that_is_the_folder_itself(tmp_path: Path) -> None:
    parent, child = folders(tmp_path)
    (parent / "weights").mkdir()
    (parent / "weights" / "a").write_text("1")
    (parent / "link").symlink_to("weights/a")
    (parent / "other.new").write_text("half")
    (parent / trial.REQUEST).touch()
    (parent / trial.MARKER).write_text("7")
    (child / "rest").write_text("of an earlier try")
    inherit.inherit(parent, child, ".")
    assert sorted(entry.name for entry in child.iterdir()) == ["link", trial.MARKER, "weights"]
    assert (child / "link").is_symlink()
    assert trial.checkpoint_in(child) == trial.Checkpoint(7, child)


@pytest.mark.parametrize(
    ("metrics", "left"),
    [
        ("m.jsonl", [trial.MARKER, "runs", "weights"]),
        ("runs", ["m.jsonl", trial.MARKER, "weights"]),
        ("runs/events.out.tfevents.1", ["m.jsonl", trial.MARKER, "runs", "weights"]),
        (".", ["m.jsonl", trial.MARKER, "runs", "weights"]),
    ],
)
def test_metrics_of_the_parent_are_not_copied(tmp_path: Path, metrics: str, left: list[str]) -> None:
    parent, child = folders(tmp_path)
    (parent / "runs").mkdir()
    for name in ("weights", "m.jsonl", "runs/events.out.tfevents.1", "runs/notes"):
        (parent / name).write_text("1")
    (parent / trial.MARKER).write_text("7")
    if metrics == ".":
        (parent / "events.out.tfevents.2").write_text("2")
    assert inherit.main([str(parent), str(child), ".", metrics]) == 0
    assert sorted(entry.name for entry in child.iterdir()) == left
    assert (child / "runs/events.out.tfevents.1").exists() == (metrics in ("m.jsonl", "."))
    assert (child / "runs/notes").exists() == (metrics != "runs")


def test_a_file_is_copied_as_a_file(tmp_path: Path) -> None:
    parent, child = folders(tmp_path)
    (parent / "step-9.pt").write_bytes(b"weights")
    (parent / trial.MARKER).write_text(json.dumps({"step": 9, "path": "step-9.pt"}))
    inherit.inherit(parent, child, "step-0-parent.pt")
    assert (child / "step-0-parent.pt").read_bytes() == b"weights"
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(inherit.InheritError, match="is a file"):
        inherit.inherit(parent, other, ".")


def test_a_parent_that_keeps_writing_is_copied_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent writes a checkpoint of two large files about every 20 ms; both must be of the marked step."""
    parent, child = folders(tmp_path)
    monkeypatch.setenv("PODIUM_CHECKPOINT", str(parent))
    monkeypatch.setattr(inherit, "TRIES", 1000)
    monkeypatch.setattr(inherit, "PAUSE_SECONDS", 0.0)
    over, first = threading.Event(), threading.Event()

    def write() -> None:
        step = 0
        while not over.is_set():
            step += 1
            text = f"{step:08d}" * 20_000
            trial.save(step, lambda where, text=text: [(where / name).write_text(text) for name in "ab"])  # type: ignore[misc]
            first.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert first.wait(60)
        inherit.inherit(parent, child, "step-0-parent")
    finally:
        over.set()
        writer.join()
    found = trial.checkpoint_in(child)
    assert found is not None
    for name in "ab":
        assert (found.path / name).read_text() == f"{found.step:08d}" * 20_000


def test_a_parent_whose_checkpoint_changes_each_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, child = folders(tmp_path)
    save(parent, 1, monkeypatch)
    monkeypatch.setattr(inherit, "PAUSE_SECONDS", 0.0)
    marked = iter(range(1000))
    monkeypatch.setattr(inherit, "_marker", lambda folder: str(next(marked)).encode())
    with pytest.raises(inherit.InheritError, match="changed during each of 5 copies"):
        inherit.inherit(parent, child, "step-0-parent")
    assert trial.checkpoint_in(child) is None


def test_the_program_explains_a_missing_checkpoint(tmp_path: Path) -> None:
    parent, child = folders(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "podium.inherit", str(parent), str(child), "x"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "CheckpointNotInherited" in done.stderr
    assert "has no complete checkpoint" in done.stderr
