"""Processes that carry podium.trial, and what they save: for the tests of the helper."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podium import trial

SOURCE = Path(trial.__file__)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a process that has just begun, outside of Podium."""
    monkeypatch.setattr(trial, "_state", trial._State())
    for name in [name for name in os.environ if name.startswith("PODIUM_")] + ["RANK", "LOCAL_RANK"]:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ckpt"
    monkeypatch.setenv("PODIUM_CHECKPOINT", str(path))
    return path


def write(text: str) -> Any:
    def fill(where: Path) -> None:
        (where / "weights").write_text(text)
        (where / "more").mkdir()
        (where / "more" / "optimizer").write_text(text)

    return fill


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def whole(saved: trial.Checkpoint | None) -> tuple[float, str]:
    assert saved is not None
    text = (saved.path / "weights").read_text()
    assert (saved.path / "more" / "optimizer").read_text() == text
    return saved.step, text


def run(code: str, *argv: str, python: str = sys.executable, **environment: str) -> subprocess.Popen[str]:
    """A process that has nothing but the file itself, as the agent's mount brings it. Its stdin ends with `end`."""
    head = "import os, sys; sys.path.append(os.environ['PODIUM_PYTHON']); from podium import trial\n"
    return subprocess.Popen(
        [python, "-I", "-S", "-c", head + code, *argv],
        env={"PATH": os.environ["PATH"], **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("python")
    (root / "podium").mkdir()
    shutil.copy(SOURCE, root / "podium")
    return str(root)


def end(process: subprocess.Popen[str], code: int = 0) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, err
    return out
