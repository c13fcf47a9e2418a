"""All problems of a machine are reported at once, each with its cure; also for kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podium_devcluster import kind, locks, main, preflight
from podium_devcluster.paths import Cache, cache_dir, project_dir
from podium_devcluster.preflight import PreflightError, Problem
from podium_devcluster.progress import Progress


def test_all_problems_are_listed() -> None:
    error = PreflightError([Problem("no overlayfs", "load it"), Problem("not root", "be root")])
    assert str(error).splitlines() == [
        "this machine cannot run the cluster yet:",
        "  - no overlayfs: load it",
        "  - not root: be root",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="as another user there is just the one problem: not root")
def test_small_disk_and_missing_programs_are_found_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_DOWNLOAD", "0")
    monkeypatch.setattr(preflight, "BUILD_DISK", 1 << 60)
    monkeypatch.setattr(preflight, "PLANE_MEMORY", 1 << 60)
    monkeypatch.setattr("podium_devcluster.gobuild.system_go", lambda: None)
    with pytest.raises(PreflightError) as caught:
        preflight.check(Cache(tmp_path), 0, Progress(quiet=True))
    text = str(caught.value)
    for part in ("missing etcd, kube-apiserver", "Go is not installed", "MB free in", "PODIUM_CACHE", "MB of memory"):
        assert part in text


def test_kind_without_docker_names_the_alternative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError, match=r"no docker: install Docker .* or use `make cluster`"):
        kind.check()


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PODIUM_CACHE", str(tmp_path / "c"))
    assert cache_dir() == tmp_path / "c"
    monkeypatch.delenv("PODIUM_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "podium"


def test_project_folder_holds_what_is_needed() -> None:
    for name in ("Dockerfile", "kind-config.yaml", "devcluster/manifests/fake-driver.yaml"):
        assert (project_dir() / name).is_file()


def test_a_lock_reports_its_holder(tmp_path: Path) -> None:
    said: list[str] = []
    refused = pytest.raises(locks.LockTimeoutError, match=f"process {os.getpid()} has held")
    with locks.held(tmp_path / "x.lock", timeout=1), refused:
        locks.held(tmp_path / "x.lock", timeout=0.2, waiting=said.append).__enter__()
    assert said == [f"process {os.getpid()} holds x.lock; waiting for it"]
    with locks.held(tmp_path / "x.lock", timeout=0.2):
        pass


@pytest.mark.parametrize(
    ("argv", "attribute", "value"),
    [
        (["up"], "nodes", None),
        (["up", "--nodes", "0"], "nodes", 0),
        (["kubectl", "--name", "x", "--", "get", "pods", "-A"], "arguments", ["get", "pods", "-A"]),
        (["node-exec", "node-1", "--", "ps", "-ef"], "arguments", ["ps", "-ef"]),
        (["images", "podium"], "only", ["podium"]),
        (["binaries"], "programs", []),
        (["binaries", "helm", "kind"], "programs", ["helm", "kind"]),
    ],
)
def test_command_line(argv: list[str], attribute: str, value: object) -> None:
    found = getattr(main.parser().parse_args(argv), attribute)
    assert (main.rest(found) if attribute == "arguments" else found) == value


def test_errors_are_one_sentence_with_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["kubectl", "--name", "Not_A_Name"])
    assert ended.value.code == 1
    assert "use 1 to 24 lower-case letters" in capsys.readouterr().err


def test_progress_without_a_terminal_is_one_line_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with progress.step("make it") as step:
        step.detail("not shown at once")
        step.note("12 MB")
    with pytest.raises(RuntimeError, match="broken"), progress.step("break it"):
        raise RuntimeError("broken")
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition("  ")[0] for line in lines] == ["  ok make it: 12 MB", "FAIL break it"]
