"""Detection of the kubelet's preStop hook in a container: it shows that the pod is being terminated.

The observer calls this for a trial that was just frozen. The freezer may catch the hook before it has become the
helper: `runc exec` puts a process into the container's cgroup that still calls itself `runc init`. Its command is in
the file that its parent was given (`--process`, runc-exec(8); an OCI runtime spec's `process`). Shortly before its end
it has no parent, and its command is unknown. It then counts as a hook. To miss a frozen hook costs the trial its
work since the last checkpoint; a false alarm costs only a time slice.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from podium_agent.observe.cgroups import Freezer, status_of

HELPER, WORD = "/podium-gate", "hook"
LARGEST_BYTES = 1 << 20  # of a process description: arguments and environment
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class _Process(BaseModel):
    args: list[str] = Field(min_length=1)


def prestop_hook_pending(proc: Path, freezer: Freezer) -> bool:
    """Return whether the hook is among the processes of this cgroup, as the helper or about to become it."""
    try:
        here = freezer.processes()
    except OSError:
        return False
    return any(_is_hook(proc, pid, here) for pid in here)


def _is_hook(proc: Path, pid: int, here: frozenset[int]) -> bool:
    words = _words(proc, pid)
    if _runs_hook(words):
        return True
    if words[1:2] != ["init"] or not _is_runc(words):
        return False
    try:
        status = status_of(proc, pid)
        parent, number = int(status["PPid"]), status["NSpid"].split()[-1]
    except (OSError, KeyError, ValueError, IndexError):
        return False  # it has ended meanwhile
    if number == "1":
        return False  # the container's own first process, about to start
    if parent in here:
        return False  # runc is outside the container: a tenant named its process so
    asked = _words(proc, parent)
    if not _is_runc(asked) or "exec" not in asked:
        return True  # the parent has ended
    described = _described(proc, parent, asked)
    return described is None or _runs_hook(described)


def _runs_hook(words: list[str]) -> bool:
    return words[0].endswith(HELPER) and words[1:2] == [WORD]


def _is_runc(words: list[str]) -> bool:
    return words[0].rpartition("/")[2] == "runc"


def _words(proc: Path, pid: int) -> list[str]:
    try:
        text = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return [""]  # it has ended meanwhile
    return text.decode(errors="replace").split("\0")


def _described(proc: Path, runc: int, words: list[str]) -> list[str] | None:
    """Return the command that runc is to run, read from its own root; None if it cannot be read now."""
    if "--process" not in words[:-1]:
        return [""]  # started by hand: containerd passes a file
    place = words[words.index("--process") + 1].lstrip("/")
    try:
        with open(os.open(proc / str(runc) / "root" / place, FILE), "rb") as file:
            return _Process.model_validate_json(file.read(LARGEST_BYTES)).args
    except (OSError, ValidationError):
        return None
