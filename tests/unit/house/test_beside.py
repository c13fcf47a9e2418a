"""tools/beside.py, with which `make test` runs two commands concurrently: exit status, priority and interruption."""

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
    """Run two shell commands with the script."""
    command = [sys.executable, str(SCRIPT), *("bash", "-c", quiet), "--", *("bash", "-c", main)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(("quiet", "main", "status"), [(0, 0, 0), (3, 0, 3), (0, 2, 2), (3, 2, 2)])
def test_the_script_fails_if_either_command_fails(quiet: int, main: int, status: int) -> None:
    finished = beside(f"exit {quiet}", f"exit {main}")
    assert finished.returncode == status
    assert f"exit status {quiet}" in finished.stdout


def test_the_quiet_command_and_its_children_run_with_idle_priority() -> None:
    finished = beside(f"{sys.executable} -c '{CLASS}'", f"{sys.executable} -c '{CLASS}' >&2")
    assert finished.stdout.splitlines()[-1] == str(os.SCHED_IDLE)
    assert finished.stderr.strip() == str(os.sched_getscheduler(0)), "the main command keeps its scheduling class"


def test_both_commands_run_concurrently(tmp_path: Path) -> None:
    """Each command waits for a file of the other."""
    quiet, main = tmp_path / "quiet", tmp_path / "main"
    meets = "touch {}; until [ -e {} ]; do sleep 0.01; done; echo {} met"
    finished = beside(meets.format(quiet, main, "quiet"), meets.format(main, quiet, "main"))
    assert finished.returncode == 0
    assert {"main met", "quiet met"} <= set(finished.stdout.splitlines())


@pytest.mark.parametrize(
    "interrupt", [lambda pid: os.killpg(pid, signal.SIGINT), lambda pid: os.kill(pid, signal.SIGTERM)]
)
def test_an_interruption_ends_both_commands(tmp_path: Path, interrupt: Callable[[int], None]) -> None:
    """A terminal signals its own session and the script signals the other command; SIGTERM reaches the script alone.

    Each command can run its trap before it ends.
    """
    waits = "trap 'echo {0} ended; exit 130' INT TERM; touch {1}; while true; do sleep 0.01; done"
    files = [tmp_path / "quiet", tmp_path / "main"]
    words = [("bash", "-c", waits.format(file.name, file)) for file in files]
    command = [sys.executable, str(SCRIPT), *words[0], "--", *words[1]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not all(file.exists() for file in files):
            assert process.poll() is None
        interrupt(process.pid)
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert {"quiet ended", "main ended"} <= set(output.splitlines())
