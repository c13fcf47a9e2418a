"""The steps of examples/demo.py: count, time limits, last lines, and commands that ignore signals."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def demo(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(ROOT / "examples/demo.py")


def test_a_failure_shows_the_command_its_code_and_its_last_lines(demo: ModuleType, tmp_path: Path) -> None:
    installation = demo.Installation(tmp_path, "x")
    with pytest.raises(demo.StepError) as caught:
        demo.call(installation, ["sh", "-c", "seq 100; echo the reason >&2; exit 7"], 10, quiet=True)
    lines = str(caught.value).splitlines()
    assert "ended with 7" in lines[0]
    assert lines[-1] == "the reason"
    assert len(lines) == 1 + demo.LAST_LINES


def test_a_command_that_hangs_is_ended_within_its_time(demo: ModuleType, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(demo.StepError, match=r"took longer than 0\.2 s"):
        demo.call(demo.Installation(tmp_path, "x"), ["sleep", "60"], 0.2)
    assert time.monotonic() - started < 10


def test_a_command_that_ignores_signals_is_killed(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "GRACE_SECONDS", 0.2)
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    started = time.monotonic()
    with pytest.raises(demo.StepError):
        demo.call(demo.Installation(tmp_path, "x"), [sys.executable, "-c", script], 1)
    assert time.monotonic() - started < 10


def test_every_command_uses_the_demos_own_cluster(demo: ModuleType, tmp_path: Path) -> None:
    installation = demo.Installation(tmp_path, "x")
    shown = demo.call(installation, ["sh", "-c", 'echo "$KUBECONFIG $PODIUM_CACHE"'], 10, quiet=True)
    assert shown.split() == [str(tmp_path / "clusters/x/kubeconfig"), str(tmp_path)]


def test_programs_of_the_cache_come_first(demo: ModuleType, tmp_path: Path) -> None:
    assert demo.Installation(tmp_path, "x").tool("helm") == "helm"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/helm").touch()
    assert demo.Installation(tmp_path, "x").tool("helm") == str(tmp_path / "bin/helm")


def test_steps_are_counted_with_their_typical_durations(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    steps = demo.Steps("up", "report")
    with steps.step("up"):
        pass
    with pytest.raises(demo.StepError), steps.step("report"):
        raise demo.StepError("no report")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"== 1 of 2: {demo.STEPS['up'][0]} (typically {demo.STEPS['up'][1]:g} s)"
    assert lines[1] == f"== 1 of 2: {demo.STEPS['up'][0]}: 0.0 s"
    assert lines[3] == "== 2 of 2: report: failed after 0.0 s"


def test_a_dashboard_that_cannot_start_is_left_out(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with demo.dashboard(demo.Installation(tmp_path, "x")):
        shown = capsys.readouterr().out
    assert shown.startswith("the page of `podium dashboard` is left out: ")
    assert str(tmp_path / "clusters/x/kubeconfig") in shown
