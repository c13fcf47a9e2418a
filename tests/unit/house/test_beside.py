"""Two commands side by side, as `make test` runs them: whose failure counts, and who goes first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "beside.py"
CLASS = "import os; print(os.sched_getscheduler(0))"


def beside(quiet: str, main: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *("bash", "-c", quiet), "--", *("bash", "-c", main)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(("quiet", "main", "status"), [(0, 0, 0), (3, 0, 3), (0, 2, 2), (3, 2, 2)])
def test_either_failure_counts(quiet: int, main: int, status: int) -> None:
    found = beside(f"exit {quiet}", f"exit {main}")
    assert found.returncode == status
    assert f"exit status {quiet}" in found.stdout


def test_the_quiet_one_and_its_children_run_where_nobody_else_wants_to() -> None:
    found = beside(f"{sys.executable} -c '{CLASS}'", f"{sys.executable} -c '{CLASS}' >&2")
    assert found.stdout.splitlines()[-1] == str(os.SCHED_IDLE)
    assert found.stderr.strip() == str(os.sched_getscheduler(0)), "the main one is of the class that it was given"


def test_they_run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for a word of the other."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    meets = "touch {}; until [ -e {} ]; do sleep 0.01; done; echo {} met"
    found = beside(meets.format(ours, theirs, "quiet"), meets.format(theirs, ours, "main"))
    assert found.returncode == 0
    assert {"main met", "quiet met"} <= set(found.stdout.splitlines())


@pytest.mark.parametrize("tell", [lambda pid: os.killpg(pid, signal.SIGINT), lambda pid: os.kill(pid, signal.SIGTERM)])
def test_an_interruption_ends_both(tmp_path: Path, tell: Callable[[int], None]) -> None:
    """A terminal tells its own session, the script the other: each does what it has to do before its end. SIGTERM comes
    to the script alone.
    """
    waits = "trap 'echo {0} ended; exit 130' INT TERM; touch {1}; while true; do sleep 0.01; done"
    files = [tmp_path / "quiet", tmp_path / "main"]
    words = [("bash", "-c", waits.format(file.name, file)) for file in files]
    command = [sys.executable, str(SCRIPT), *words[0], "--", *words[1]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not all(file.exists() for file in files):
            assert process.poll() is None
        tell(process.pid)
        told, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert {"quiet ended", "main ended"} <= set(told.splitlines())
