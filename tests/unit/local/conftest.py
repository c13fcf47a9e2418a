"""Lets the tests of this folder import `local_scene` beside it (there are no packages under tests)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for `cuda_node`, which several folders of tests share

from cuda_node import cuda_machine, cuda_node, driver
from local_scene import Scene

__all__ = ["cuda_machine", "cuda_node", "driver"]


@pytest.fixture(autouse=True)
def activated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put this environment's python3 first on the path, as an activated one: the example needs scikit-learn."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    monkeypatch.setenv("PATH", path)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a folder with a script and a job, in which `podium run` can be called."""
    return Scene(tmp_path)
