"""The step runner of examples/demo.py: time limits, last lines, and commands that do not want to end."""

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
    place = demo.Place(tmp_path, "x")
    with pytest.raises(demo.StepError) as caught:
        demo.call(place, ["sh", "-c", "seq 100; echo the reason >&2; exit 7"], 10, quiet=True)
    lines = str(caught.value).splitlines()
    assert "ended with 7" in lines[0]
    assert lines[-1] == "the reason"
    assert len(lines) == 1 + demo.LAST_LINES


def test_a_command_that_hangs_is_ended_within_its_time(demo: ModuleType, tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(demo.StepError, match=r"took longer than 0\.2 s"):
        demo.call(demo.Place(tmp_path, "x"), ["sleep", "60"], 0.2)
    assert time.monotonic() - begun < 10


def test_a_command_that_ignores_signals_is_killed(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "LEAVE_SECONDS", 0.2)
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    begun = time.monotonic()
    with pytest.raises(demo.StepError):
        demo.call(demo.Place(tmp_path, "x"), [sys.executable, "-c", script], 1)
    assert time.monotonic() - begun < 10


def test_every_command_speaks_to_the_demos_own_cluster(demo: ModuleType, tmp_path: Path) -> None:
    place = demo.Place(tmp_path, "x")
    shown = demo.call(place, ["sh", "-c", 'echo "$KUBECONFIG $PODIUM_CACHE"'], 10, quiet=True)
    assert shown.split() == [str(tmp_path / "clusters/x/kubeconfig"), str(tmp_path)]


def test_own_tools_come_first(demo: ModuleType, tmp_path: Path) -> None:
    assert demo.Place(tmp_path, "x").tool("helm") == "helm"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/helm").touch()
    assert demo.Place(tmp_path, "x").tool("helm") == str(tmp_path / "bin/helm")
