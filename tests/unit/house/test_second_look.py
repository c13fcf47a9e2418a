"""What `make test` runs a second time, and what it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tools" / "second_look.py"
ONE = "tests/e2e/test_fail.py::test_once"
# what is installed beside them takes a second of every process of pytest
FEW_PLUGINS = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}


@pytest.fixture
def look(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(SCRIPT)


@pytest.mark.parametrize(
    ("status", "failed", "why"),
    [
        pytest.param(1, [ONE], None, id="one"),
        pytest.param(1, [f"{ONE}[{n}]" for n in range(3)], None, id="three"),
        pytest.param(1, [f"{ONE}[{n}]" for n in range(4)], "4 tests failed", id="four are no accident"),
        pytest.param(1, [], "no failed test", id="nothing written down"),
        pytest.param(2, [ONE], "status 2", id="interrupted"),
        pytest.param(3, [ONE], "status 3", id="an error inside pytest"),
        pytest.param(1, ["tests/e2e/test_fail.py"], "could not be read", id="a file that does not import"),
    ],
)
def test_when_there_is_a_second_look(look: ModuleType, status: int, failed: list[str], why: str | None) -> None:
    said = look.refusal(status, failed)
    assert said is None if why is None else why in said


def test_workers_that_crash_again_and_again_are_no_accident(look: ModuleType) -> None:
    assert look.refusal(1, [ONE], [ONE] * 3) is None
    assert "4 times" in look.refusal(1, [ONE], [ONE] * 4)


def test_only_tests_on_clusters(look: ModuleType) -> None:
    assert look.of_clusters({"tests/unit/a.py::b": True, ONE: True, "tests/integration/x.py::y": True}) == [
        ONE,
        "tests/integration/x.py::y",
    ]


def test_a_story_is_told_from_its_beginning(look: ModuleType) -> None:
    """Its later tests fail with the first, and none of them can pass alone."""
    failed = look.of_clusters(
        {f"tests/integration/test_reservations.py::test_{n}": True for n in range(5)} | {ONE: True}
    )
    assert failed == [ONE, "tests/integration/test_reservations.py"]
    assert look.refusal(1, failed) is None


def test_every_story_is_known(look: ModuleType) -> None:
    files = [path for layer in look.LAYERS for path in (ROOT / layer).glob("test_*.py")]
    mark = "continues from the state of the previous one"
    stories = {str(path.relative_to(ROOT)) for path in files if mark in path.read_text().split('"""')[1]}
    assert stories == set(look.STORIES)


@pytest.mark.parametrize(("fails", "ends"), [(1, 0), (2, 1)], ids=["failed once", "fails always"])
def test_whole(tmp_path: Path, fails: int, ends: int) -> None:
    """With pytest itself: what fails once passes, and is named; what fails twice has failed."""
    test = tmp_path / "tests" / "e2e" / "test_fail.py"
    test.parent.mkdir(parents=True)
    test.write_text(
        "from pathlib import Path\n"
        "def test_once():\n"
        "    seen = Path('seen')\n"
        "    before = len(seen.read_text()) if seen.exists() else 0\n"
        "    seen.write_text('x' * (before + 1))\n"
        f"    assert before >= {fails}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "tests/e2e"]
    first = subprocess.run(command, cwd=tmp_path, check=False, timeout=300, env=FEW_PLUGINS)
    second = again(tmp_path, first.returncode)
    assert first.returncode == 1
    assert second.returncode == ends, second.stdout + second.stderr
    assert ("FLAKY" in second.stdout) is (ends == 0)


def again(folder: Path, status: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(status)]
    given: dict[str, Any] = {"cwd": folder, "env": FEW_PLUGINS, "timeout": 300}
    return subprocess.run(command, capture_output=True, text=True, check=False, **given)


def test_a_worker_that_crashed_once(tmp_path: Path) -> None:
    """The next worker's pass makes pytest forget that; the run has failed all the same."""
    test = tmp_path / "tests" / "e2e" / "test_fail.py"
    test.parent.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "crashed_workers.py", tmp_path / "tests" / "conftest.py")
    test.write_text(
        "import os\nfrom pathlib import Path\n"
        "def test_once():\n"
        "    if not Path('seen').exists():\n"
        "        Path('seen').touch()\n"
        "        os._exit(1)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--numprocesses=1", "--dist=loadfile", "tests/e2e"]
    first = subprocess.run(command, cwd=tmp_path, check=False, timeout=300, env=FEW_PLUGINS)
    second = again(tmp_path, first.returncode)
    assert first.returncode == 1
    assert second.returncode == 0, second.stdout + second.stderr
    assert f"FLAKY, failed first and passed alone: {ONE}" in second.stdout
