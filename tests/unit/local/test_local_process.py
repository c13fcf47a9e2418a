"""Processes of a trial: suspension of whole trees, and ends that nothing of a trial survives."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_scene import ROOT, is_alive, wait_until

from podium_local.processes import process_tree
from podium_local.processes.process import Guardian, Launch, TrialProcess
from podium_local.processes.stopping import ProcessTree
from podium_suspension.freeze import Freeze
from podium_suspension.target import FreezerState

# a shell with a child in its group, one in a session of its own, and one that has left the shell's descendants
FAMILY = "sleep 1000 & setsid sleep 1001 & (setsid sleep 1002 &) ; echo ready; wait"


@pytest.fixture
def guardian(tmp_path: Path) -> Iterator[Guardian]:
    started = Guardian(tmp_path)
    yield started
    started.close()


def family(folder: Path, guardian: Guardian, **variables: str) -> TrialProcess:
    """Start the shell and wait for its children."""
    marked = {**os.environ, process_tree.RUN_VARIABLE: str(folder), **variables}
    started = TrialProcess(Launch(["sh", "-c", FAMILY], marked, str(folder)), folder / "log", guardian)
    wait_until(lambda: len(marked_by(folder)) == 4)
    return started


def marked_by(folder: Path) -> set[int]:
    return process_tree.with_variable(process_tree.RUN_VARIABLE, str(folder))


def states(pids: set[int]) -> set[str]:
    there = process_tree.all_processes()
    return {there[pid].state for pid in pids if pid in there}


def test_a_suspension_stops_the_whole_tree_and_a_resumption_continues_it(tmp_path: Path, guardian: Guardian) -> None:
    process = family(tmp_path, guardian)
    mine = process_tree.tree(process.pid, process_tree.all_processes())
    assert len(mine) >= 3
    target = ProcessTree("tiny-0-0", process.pid)
    assert asyncio.run(Freeze(5.0).suspend((target,))).ok
    assert states(mine) == {"T"}
    assert target.frost() is FreezerState.FROZEN
    assert asyncio.run(Freeze(5.0).resume((target,))).ok
    wait_until(lambda: "T" not in states(mine))
    process.kill()


def test_what_a_trial_leaves_behind_ends_with_it(tmp_path: Path, guardian: Guardian) -> None:
    process = family(tmp_path, guardian)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: process.exit_code() is not None)
    assert process.exit_code() == 128 + signal.SIGKILL
    guardian.close()  # as at the end of a run
    assert marked_by(tmp_path) == set()


def test_a_kill_reaches_workers_in_sessions_of_their_own(tmp_path: Path, guardian: Guardian) -> None:
    process = family(tmp_path, guardian)
    mine = process_tree.tree(process.pid, process_tree.all_processes())
    process.kill()
    assert process.exit_code() == 128 + signal.SIGKILL
    assert not any(map(is_alive, mine))


def test_a_launcher_that_ends_by_itself_leaves_no_worker(tmp_path: Path, guardian: Guardian) -> None:
    mark = {process_tree.ATTEMPT_VARIABLE: str(tmp_path / "tiny-0-0")}
    process = family(tmp_path, guardian, **mark)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: process.exit_code() is not None)
    assert marked_by(tmp_path) == set()


def test_a_kill_spares_a_process_with_the_number_of_one_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {7: process_tree.Process("S", 1, 7, 7, 100), 8: process_tree.Process("S", 7, 8, 8, 101)}
    after = {8: process_tree.Process("S", 1, 8, 8, 999)}  # another process since then
    views, sent = iter([before, after]), []
    monkeypatch.setattr(process_tree, "all_processes", lambda: next(views))
    monkeypatch.setattr(process_tree, "send", lambda pid, number: sent.append(pid))
    monkeypatch.setattr(process_tree, "_signal_group", lambda root, number: None)
    assert process_tree.kill(7)
    assert sorted(sent) == [7, 8]


RUNNER = """
import os, sys, time
from pathlib import Path
from podium_local.processes.process import Guardian, Launch, TrialProcess
folder = Path(sys.argv[1])
guardian = Guardian(folder)
process = TrialProcess(
    Launch(["sh", "-c", sys.argv[2]], {**os.environ, "PODIUM_RUN_FOLDER": str(folder)}, str(folder)),
    folder / "log",
    guardian,
)
print(guardian.pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("kills_guardian", [False, True])
def test_nothing_survives_a_runner_that_was_killed(tmp_path: Path, kills_guardian: bool) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(tmp_path), FAMILY],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "local"), os.environ.get("PYTHONPATH", "")])},
        text=True,
    )
    assert runner.stdout is not None
    guardian = int(runner.stdout.readline())
    wait_until(lambda: len(marked_by(tmp_path)) == 4)
    if kills_guardian:
        os.kill(guardian, signal.SIGKILL)
    runner.kill()
    runner.communicate()
    if kills_guardian:  # the next runner of this folder removes the rest
        assert process_tree.kill_with_variable(process_tree.RUN_VARIABLE, str(tmp_path))
    wait_until(lambda: marked_by(tmp_path) == set())
    wait_until(lambda: not is_alive(guardian))


def test_a_guardian_that_was_killed_is_replaced(tmp_path: Path, guardian: Guardian) -> None:
    process = family(tmp_path, guardian)
    os.kill(guardian.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(guardian.pid))
    other = TrialProcess(Launch(["sleep", "1000"], dict(os.environ), str(tmp_path)), tmp_path / "log", guardian)
    guardian.close()
    for one in (process, other):
        wait_until(lambda one=one: one.exit_code() is not None)  # type: ignore[misc]
        assert one.exit_code() == 128 + signal.SIGKILL
