"""The e2e tests' own instruments: an instrument that cannot show a fault proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(scope="module")
def evidence(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(Path(__file__).parents[2] / "e2e" / "evidence.py")


def line(start: float, end: float, container: str, gpu: str = "GPU-1") -> str:
    return f"{start - 0.02} {end + 0.02} {gpu} 7 {container} 1000 {start} {end} 0.0 0.0 python3 train.py"


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        ([line(1, 2, "a"), line(2, 3, "b")], 0),
        ([line(1, 2, "a"), line(1.99, 3, "b")], 1),
        ([line(1, 2, "a"), line(1.5, 3, "a")], 0),
        ([line(1, 9, "a"), line(2, 3, "b"), line(4, 5, "b")], 2),
        ([line(1, 9, "a"), line(2, 3, "b", "GPU-2")], 0),
        ([line(1, 2, "a"), line(1.5, 1.49, "b")], 0),
        (["# a comment", ""], 0),
    ],
    ids=["one-after-another", "overlap", "same-container", "long-and-two-short", "two-gpus", "below-a-sample", "empty"],
)
def test_two_at_work_at_once_are_counted(evidence: ModuleType, lines: list[str], want: int) -> None:
    assert len(evidence.overlaps(evidence.work_of("\n".join(lines)))) == want


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([3.0, 1.0, 2.0, 1.0], {"step": 4, "latest": 1.0, "min": 1.0, "minStep": 2, "max": 3.0, "maxStep": 1}),
        ([2.0, float("nan")], {"step": 2, "latest": "nan", "min": 2.0, "minStep": 1, "max": 2.0, "maxStep": 1}),
        ([float("inf")], {"step": 1, "latest": "inf"}),
    ],
)
def test_what_a_status_must_say_of_printed_values(evidence: ModuleType, values: list[float], want: object) -> None:
    log = "".join(f't stdout F {{"n": {n}, "loss": "{value}"}}\n' for n, value in enumerate(values, start=1))
    assert evidence.summary(evidence.printed(log, "loss", "n")) == want


def test_a_container_that_comes_back_was_suspended(evidence: ModuleType) -> None:
    lines = [line(1, 2, "a"), line(3, 4, "b"), line(5, 6, "a"), line(7, 8, "a"), line(9, 10, "b")]
    assert evidence.resumptions(evidence.work_of("\n".join(lines))) == 2


def test_only_lines_with_the_metric_are_points(evidence: ModuleType) -> None:
    log = '2026-01-01T00:00:00Z stdout F {"epoch": 1, "val_acc": 0.5}\n2026-01-01T00:00:01Z stdout F hello\n'
    assert evidence.printed(log, "val_acc", "epoch") == [(1, 0.5)]


def test_frozen_cgroups_of_both_versions_are_found(evidence: ModuleType, tmp_path: Path) -> None:
    for name, value in (("a/freezer.state", "FROZEN"), ("b/freezer.state", "THAWED"), ("c/cgroup.freeze", "1")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(value + "\n")
    assert sorted(path.name for path in evidence.frozen_cgroups([tmp_path])) == ["a", "c"]


@pytest.fixture
def trial(tmp_path: Path) -> SimpleNamespace:
    """A trial as the fault tests see it from outside: its folder on the volume, the cgroup of its container."""
    folder, group = tmp_path / "folder", tmp_path / "group"
    folder.mkdir()
    group.mkdir()
    found = SimpleNamespace(
        group=group, request=folder / "podium-checkpoint-request", marker=folder / "podium-checkpoint.json"
    )
    found.save = lambda step: found.marker.write_text(f'{{"step": {step}, "path": "step-{step}", "onRequest": true}}')
    found.save(5)
    found.scene = SimpleNamespace(folder=lambda job, name: folder, freezer=lambda pod: group)
    return found


@pytest.fixture
def reached(trial: SimpleNamespace, load_script: Callable[[Path], ModuleType]) -> Callable[[str], Any]:
    module = load_script(Path(__file__).parents[2] / "e2e" / "test_agent_faults.py")
    pod = {"metadata": {"labels": {"podium.dev/trial": "a"}}}
    return lambda step: module.requeue_step(trial.scene, pod, step)


def test_a_save_that_nobody_asked_for_is_no_step_of_a_requeue(trial: SimpleNamespace, reached: Any) -> None:
    steps = {step: reached(step) for step in ("asked", "saved", "ended")}

    def so_far() -> set[str]:
        return {step for step, condition in steps.items() if condition()}

    trial.save(10)
    assert so_far() == set(), "every 5th step is saved"
    trial.request.touch()
    assert so_far() == {"asked"}
    trial.request.unlink()
    trial.save(15)
    assert so_far() == {"asked", "saved"}, "the answer, also in a step that is saved anyway"
    trial.group.rmdir()
    assert so_far() == {"asked", "saved", "ended"}


def test_a_request_that_nobody_saw_is_known_by_its_answer_or_by_the_end(trial: SimpleNamespace, reached: Any) -> None:
    asked, saved = reached("asked"), reached("saved")
    trial.save(12)
    assert asked()
    assert saved()
    saved = reached("saved")
    trial.save(15)
    assert not saved()
    trial.group.rmdir()
    assert saved()
