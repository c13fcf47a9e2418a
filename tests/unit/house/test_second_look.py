"""tools/second_look.py: which failed tests `make test` runs a second time."""

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
# other installed plugins would cost a second for every pytest process
FEW_PLUGINS = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}


@pytest.fixture
def look(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(SCRIPT)


@pytest.mark.parametrize(
    ("status", "failed", "why"),
    [
        pytest.param(1, [ONE], None, id="one"),
        pytest.param(1, [f"{ONE}[{n}]" for n in range(3)], None, id="three"),
        pytest.param(1, [f"{ONE}[{n}]" for n in range(4)], "4 tests failed", id="four is too many"),
        pytest.param(1, [], "no failed test", id="no recorded failure"),
        pytest.param(2, [ONE], "status 2", id="interrupted"),
        pytest.param(3, [ONE], "status 3", id="an error inside pytest"),
        pytest.param(1, ["tests/e2e/test_fail.py"], "could not be read", id="a file that cannot be imported"),
    ],
)
def test_few_failures_are_repeated(look: ModuleType, status: int, failed: list[str], why: str | None) -> None:
    reason = look.refusal(status, failed)
    assert reason is None if why is None else why in reason


def test_repeatedly_crashing_workers_are_not_repeated(look: ModuleType) -> None:
    assert look.refusal(1, [ONE], [ONE] * 3) is None
    assert "4 times" in look.refusal(1, [ONE], [ONE] * 4)


def test_only_tests_on_clusters_are_repeated(look: ModuleType) -> None:
    assert look.of_clusters({"tests/unit/a.py::b": True, ONE: True, "tests/integration/x.py::y": True}) == [
        ONE,
        "tests/integration/x.py::y",
    ]


def test_dependent_tests_are_repeated_as_a_whole_file(look: ModuleType) -> None:
    """If the first test of such a file fails, the later ones fail too, and none of them passes alone."""
    failed = look.of_clusters(
        {f"tests/integration/test_reservations.py::test_{n}": True for n in range(5)} | {ONE: True}
    )
    assert failed == [ONE, "tests/integration/test_reservations.py"]
    assert look.refusal(1, failed) is None


def test_every_file_of_dependent_tests_is_known(look: ModuleType) -> None:
    files = [path for layer in look.LAYERS for path in (ROOT / layer).glob("test_*.py")]
    mark = "continues from the state of the previous one"
    stories = {str(path.relative_to(ROOT)) for path in files if mark in path.read_text().split('"""')[1]}
    assert stories == set(look.STORIES)


@pytest.mark.parametrize(("fails", "ends"), [(1, 0), (2, 1)], ids=["failed once", "fails always"])
def test_a_failed_test_is_repeated_by_pytest(tmp_path: Path, fails: int, ends: int) -> None:
    """A test that fails once passes and is reported as flaky; a test that fails twice has failed."""
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
    second = repeat(tmp_path, first.returncode)
    assert first.returncode == 1
    assert second.returncode == ends, second.stdout + second.stderr
    assert ("FLAKY" in second.stdout) is (ends == 0)


def repeat(folder: Path, status: int) -> subprocess.CompletedProcess[str]:
    """Run the script after a run of pytest with this exit status."""
    command = [sys.executable, str(SCRIPT), str(status)]
    options: dict[str, Any] = {"cwd": folder, "env": FEW_PLUGINS, "timeout": 300}
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_a_test_whose_worker_crashed_once_is_repeated(tmp_path: Path) -> None:
    """If the next worker passes, pytest no longer lists the test as failed, although the run has failed."""
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
    second = repeat(tmp_path, first.returncode)
    assert first.returncode == 1
    assert second.returncode == 0, second.stdout + second.stderr
    assert f"FLAKY, failed first and passed alone: {ONE}" in second.stdout
