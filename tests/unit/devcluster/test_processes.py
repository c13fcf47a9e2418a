"""A process is identified by pid and start time, so a recycled pid is never signalled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from podium_devcluster import teardown
from podium_devcluster.runtime.cgroups import ClusterCgroups, Hierarchies
from podium_devcluster.runtime.processes import Processes, ProcessState, Record, is_same, parse_stat, state_of


def record(pid: int = 7, start: int = 100) -> Record:
    return Record("etcd", ("etcd",), {}, "/dev/null", pid, start)


def test_stat_with_a_hostile_name() -> None:
    text = "42 (a ) (b) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3"
    assert parse_stat(text) == ProcessState(pid=42, parent=7, state="S", start=98765)


@pytest.mark.parametrize(
    ("now", "same"),
    [
        (ProcessState(7, 1, "S", 100), True),
        (ProcessState(7, 1, "R", 100), True),
        (ProcessState(7, 1, "S", 101), False),  # recycled
        (ProcessState(7, 1, "Z", 100), False),  # dead, not yet collected
        (None, False),
    ],
)
def test_same(now: ProcessState | None, same: bool) -> None:
    assert is_same(record(), now) is same


def test_state_of_this_process() -> None:
    state = state_of(os.getpid())
    assert state is not None
    assert (state.parent, state.state) == (os.getppid(), "R")


def test_a_program_is_started_identified_killed_and_started_again(tmp_path: Path) -> None:
    processes = Processes(tmp_path / "run", tmp_path / "log", tmp_path / "cgroup.procs")
    code = "import time; print('here', flush=True); time.sleep(60)"
    processes.start("thing", [sys.executable, "-c", code], {"PATH": os.environ["PATH"]})
    try:
        assert processes.alive("thing")
        assert (tmp_path / "cgroup.procs").read_text() == "0\n"
        with pytest.raises(RuntimeError, match="running already"):
            processes.start_again("thing")
        processes.kill("thing", signal.SIGTERM)
        assert not processes.alive("thing")
        with pytest.raises(ProcessLookupError, match="not running"):
            processes.payload("thing")
        processes.start_again("thing")
        assert processes.alive("thing")
    finally:
        processes.kill("thing")
    processes.kill("thing")  # a second call is not an error


def test_an_unknown_component_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no component 'kubelet'; choose from: none"):
        Processes(tmp_path, tmp_path, tmp_path / "x").get("kubelet")


def test_recycled_pid_is_not_killed(tmp_path: Path) -> None:
    """The record of a killed run names a running process with another start time."""
    run = tmp_path / "run"
    run.mkdir()
    other = subprocess.Popen(["sleep", "60"])
    try:
        state = state_of(other.pid)
        assert state is not None
        stale = {
            "component": "etcd",
            "argv": ["etcd"],
            "env": {},
            "log": "x",
            "pid": other.pid,
            "start": state.start - 1,
        }
        (run / "etcd.json").write_text(json.dumps(stale))
        (run / "half.json").write_text('{"component": "ha')
        processes = Processes(run, tmp_path / "log", tmp_path / "cgroup.procs")
        groups = ClusterCgroups("x", Hierarchies(v2=True, roots=(tmp_path,), tracking=tmp_path))
        assert list(processes.records()) == ["etcd"]
        assert teardown.end_processes(groups, processes) == 0
        processes.kill("etcd")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_recorded_process_outside_the_group_is_ended(tmp_path: Path) -> None:
    processes = Processes(tmp_path / "run", tmp_path / "log", tmp_path / "cgroup.procs")
    processes.start("thing", ["sleep", "60"])
    groups = ClusterCgroups("x", Hierarchies(v2=True, roots=(tmp_path,), tracking=tmp_path))
    assert teardown.end_processes(groups, processes) == 1
    assert not processes.alive("thing")


def test_mounts_below_a_folder() -> None:
    text = "o /a/b/merged overlay rw 0 0\nt /a/bc tmpfs rw 0 0\np /a/b proc rw 0 0\nx /a/b/with\\040blank ext4 rw 0 0\n"
    assert teardown.mounts_below(Path("/a/b"), text) == ["/a/b/merged", "/a/b", "/a/b/with blank"]
