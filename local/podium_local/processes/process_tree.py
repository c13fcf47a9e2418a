"""Processes of a trial: its process group and session, and every descendant, found in /proc.

The kernel's process groups are enough for most scripts. Some launchers start workers in sessions of their own; these
are descendants. A process that also left its parent is found by a variable of its environment. The module needs only
the standard library, because the guardian imports it; `stopping` makes a tree a target of suspension methods.

A process whose parent has ended is a descendant no more. So `kill` reads /proc before its first signal.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

STOPPED = frozenset("TtZX")  # stopped, traced, a zombie, dead: none of these runs
PAUSE_SECONDS = 0.002
MAX_PASSES = 10_000
MAX_ENVIRONMENT = 1 << 22  # bytes
RUN_VARIABLE = "PODIUM_RUN_FOLDER"  # marks every process of a run, also those that left its process groups
ATTEMPT_VARIABLE = "PODIUM_RUN_ATTEMPT"  # the same for every process of one attempt


class Process(NamedTuple):
    """What /proc/PID/stat says of a process."""

    state: str
    parent: int
    group: int
    session: int
    started: int  # in clock ticks since the boot: with the pid it identifies a process


def all_processes() -> dict[int, Process]:
    """Return every process that this user can see, by pid."""
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                found[int(name)] = _read(int(name))
    return found


def tree(root: int, processes: Mapping[int, Process]) -> set[int]:
    """Return the pids of the group and session of `root`, and of their descendants."""
    return _trees({root}, processes)


def _trees(roots: set[int], processes: Mapping[int, Process]) -> set[int]:
    mine = {pid for pid, one in processes.items() if not roots.isdisjoint((pid, one.group, one.session))}
    children: dict[int, list[int]] = {}
    for pid, one in processes.items():
        children.setdefault(one.parent, []).append(pid)
    waiting = list(mine)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in mine:
                mine.add(child)
                waiting.append(child)
    return mine


def request_stop(root: int) -> None:
    """Send SIGSTOP to every process of the tree; the kernel stops each of them a moment later.

    A process with a pending SIGSTOP creates no other one, so all have it once a look finds none without it.
    """
    _signal_group(root, signal.SIGSTOP)
    asked: set[int] = set()
    for _ in range(MAX_PASSES):
        processes = all_processes()
        awake = {pid for pid in tree(root, processes) if processes[pid].state not in STOPPED} - asked
        if not awake:
            return
        for pid in awake:
            send(pid, signal.SIGSTOP)
        asked |= awake


def resume(root: int) -> None:
    """Continue every process of the tree."""
    processes = all_processes()
    for pid in tree(root, processes):
        if processes[pid].state in "Tt":
            send(pid, signal.SIGCONT)
    _signal_group(root, signal.SIGCONT)


def kill(root: int, seconds: float = 5.0) -> bool:
    """Kill every process of the tree, and return whether all of them ended in time.

    Zombies count as ended.
    """
    end = time.monotonic() + seconds
    known: dict[int, int] = {}  # time of the start by pid
    for _ in range(MAX_PASSES):
        processes = all_processes()
        same = {pid for pid, started in known.items() if pid not in processes or processes[pid].started == started}
        mine = _trees({root, *same}, processes)
        known = {pid: known[pid] for pid in same} | {pid: processes[pid].started for pid in mine}
        _signal_group(root, signal.SIGKILL)
        alive = [pid for pid in mine if processes[pid].state not in "ZX"]
        if not alive:
            return True
        for pid in alive:
            send(pid, signal.SIGKILL)
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_SECONDS)
    return False


def with_variable(name: str, value: str) -> set[int]:
    """Return the pids of this user's processes whose environment has this variable."""
    wanted = f"{name}={value}".encode()
    found = set()
    for pid in all_processes():
        with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if wanted in file.read(MAX_ENVIRONMENT).split(b"\0"):
                found.add(pid)
    return found - {os.getpid()}


def kill_with_variable(name: str, value: str, seconds: float = 5.0) -> bool:
    """Kill the processes with this variable, and return whether all of them ended in time."""
    end = time.monotonic() + seconds
    while left := with_variable(name, value):  # the environment of a zombie is empty
        for pid in left:
            send(pid, signal.SIGKILL)
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


def handles(pid: int, number: int) -> bool:
    """Return whether the process has a handler for the signal; True if that is unknown."""
    with suppress(OSError, ValueError), open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return True


def send(pid: int, number: int) -> None:
    """Send a signal to a process; one that has ended is not an error."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _signal_group(root: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(root, number)


def _read(pid: int) -> Process:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read(4096).rpartition(b")")[2].split()
    return Process(chr(fields[0][0]), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))
