"""The measurements of the e2e tests: they must detect the faults that they look for."""

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
    """Return a line of the GPU sampler."""
    return f"{start - 0.02} {end + 0.02} {gpu} 7 {container} 1000 {start} {end} 0.0 0.0 python3 train.py"


@pytest.mark.parametrize(
    ("lines", "expected"),
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
def test_overlapping_executions_are_counted(evidence: ModuleType, lines: list[str], expected: int) -> None:
    assert len(evidence.overlaps(evidence.work_of("\n".join(lines)))) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, 1.0, 2.0, 1.0], {"step": 4, "latest": 1.0, "min": 1.0, "minStep": 2, "max": 3.0, "maxStep": 1}),
        ([2.0, float("nan")], {"step": 2, "latest": "nan", "min": 2.0, "minStep": 1, "max": 2.0, "maxStep": 1}),
        ([float("inf")], {"step": 1, "latest": "inf"}),
    ],
)
def test_the_expected_status_is_derived_from_printed_values(
    evidence: ModuleType, values: list[float], expected: object
) -> None:
    log = "".join(f't stdout F {{"n": {n}, "loss": "{value}"}}\n' for n, value in enumerate(values, start=1))
    assert evidence.summary(evidence.printed(log, "loss", "n")) == expected


def test_a_container_that_runs_again_counts_as_resumed(evidence: ModuleType) -> None:
    lines = [line(1, 2, "a"), line(3, 4, "b"), line(5, 6, "a"), line(7, 8, "a"), line(9, 10, "b")]
    assert evidence.resumptions(evidence.work_of("\n".join(lines))) == 2


def test_only_lines_with_the_metric_count_as_values(evidence: ModuleType) -> None:
    log = '2026-01-01T00:00:00Z stdout F {"epoch": 1, "val_acc": 0.5}\n2026-01-01T00:00:01Z stdout F hello\n'
    assert evidence.printed(log, "val_acc", "epoch") == [(1, 0.5)]


def test_frozen_cgroups_of_both_versions_are_found(evidence: ModuleType, tmp_path: Path) -> None:
    for name, value in (("a/freezer.state", "FROZEN"), ("b/freezer.state", "THAWED"), ("c/cgroup.freeze", "1")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(value + "\n")
    assert sorted(path.name for path in evidence.frozen_cgroups([tmp_path])) == ["a", "c"]


@pytest.fixture
def trial(tmp_path: Path) -> SimpleNamespace:
    """Return a trial as the fault tests observe it: its folder on the volume and the cgroup of its container."""
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


def test_a_periodic_checkpoint_is_not_a_step_of_a_requeue(trial: SimpleNamespace, reached: Any) -> None:
    steps = {step: reached(step) for step in ("asked", "saved", "ended")}

    def so_far() -> set[str]:
        return {step for step, condition in steps.items() if condition()}

    trial.save(10)
    assert so_far() == set(), "the trial saves every 5th step anyway"
    trial.request.touch()
    assert so_far() == {"asked"}
    trial.request.unlink()
    trial.save(15)
    assert so_far() == {"asked", "saved"}, "a checkpoint on request counts, even in a step that is saved anyway"
    trial.group.rmdir()
    assert so_far() == {"asked", "saved", "ended"}


def test_a_missed_request_is_detected_by_its_checkpoint_or_the_end(trial: SimpleNamespace, reached: Any) -> None:
    asked, saved = reached("asked"), reached("saved")
    trial.save(12)
    assert asked()
    assert saved()
    saved = reached("saved")
    trial.save(15)
    assert not saved()
    trial.group.rmdir()
    assert saved()


def test_logs_are_those_of_worker_0_by_trial_and_attempt(
    tmp_path: Path, load_script: Callable[[Path], ModuleType]
) -> None:
    """Of pods that Podium creates, and of those that a Job creates, whose names end in five random characters."""
    module = load_script(Path(__file__).parents[2] / "e2e" / "scene.py")
    ours = {
        "pair-0-0_uid/train": ("pair-0", "0"),
        "pair-1-2-worker-0-0-24689_uid/train": ("pair-1", "2"),
        "pair-0-1-node-0-0-bcdfg_uid/node": ("pair-0", "1"),
    }
    others = (
        *("pair-0-0-w1_uid/train", "pair-0-3-worker-0-1-bcdfg_uid/train"),  # worker 1
        *("pair-0-4_uid/podium-gate", "alone-pair-1_uid/train"),
    )
    for name in (*ours, *others):
        file = tmp_path / "node-1/pods" / f"default_{name}" / "0.log"
        file.parent.mkdir(parents=True)
        file.touch()
    logs = module.TrialLogs(SimpleNamespace(cluster=SimpleNamespace(logs=tmp_path)), "pair")
    logs.open_new()
    assert logs.files.keys() == set(ours.values())
    logs.close()
