"""All problems of a machine are reported at once, each with its cure; also for kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podium_devcluster import kind, locks, main, preflight, storage
from podium_devcluster.artifacts.preparation import Piece, build_all
from podium_devcluster.paths import Cache, cache_dir, project_dir
from podium_devcluster.preflight import PreflightError, Problem
from podium_devcluster.progress import Progress, duration


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
    monkeypatch.setattr("podium_devcluster.artifacts.gobuild.system_go", lambda: None)
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
    messages: list[str] = []
    refused = pytest.raises(locks.LockTimeoutError, match=f"process {os.getpid()} has held")
    with locks.held(tmp_path / "x.lock", timeout=1), refused:
        locks.held(tmp_path / "x.lock", timeout=0.2, waiting=messages.append).__enter__()
    assert messages == [f"process {os.getpid()} holds x.lock; waiting for it"]
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
    given = getattr(main.parser().parse_args(argv), attribute)
    assert (main.rest(given) if attribute == "arguments" else given) == value


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


def test_a_step_that_is_skipped_is_not_ok(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress().step("download it") as step:
        step.skip("the server cannot be reached")
    assert capsys.readouterr().err.splitlines() == ["skip download it: the server cannot be reached"]


def test_an_inner_step_prints_only_what_went_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with progress.step("outer"):
        with progress.step("good"):
            pass
        with progress.step("bad") as step:
            step.skip("no network")
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition("  ")[0] or line for line in lines] == ["skip bad: no network", "  ok outer"]


@pytest.mark.parametrize(("seconds", "text"), [(4.4, "4 s"), (60, "1 min"), (125, "2 min 05 s")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_what_is_built_is_counted_with_its_typical_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[str] = []
    pieces = [Piece(name, 60.0, lambda name=name: made.append(name)) for name in ("etcd", "kubelet")]
    build_all(pieces, Cache(tmp_path), Progress())
    lines = capsys.readouterr().err.splitlines()
    assert made == ["etcd", "kubelet"]
    assert lines[0].startswith("Building 2 programs and images once, typically in 2 min on two cores.")
    assert lines[1].startswith("  ok [1 of 2] etcd: 0 s so far, typically 2 min in all")
    assert lines[2].startswith("  ok [2 of 2] kubelet: ")


def test_nothing_to_build_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_all([], Cache(tmp_path), Progress())
    assert capsys.readouterr().err == ""


def test_the_cache_is_measured_and_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert storage.report(cache) == f"The cache {cache.root} is empty."
    cache.bin.mkdir(parents=True)
    (cache.bin / "kubelet").write_bytes(b"x" * (20 << 20))
    (cache.bin / "same").hardlink_to(cache.bin / "kubelet")
    assert "takes 21 MB: programs 21 MB." in storage.report(cache)
    assert "`podium-devcluster clean`" in storage.report(cache)
    assert storage.clean(cache) == f"Removed {cache.root} (21 MB)."
    assert not cache.root.exists()
