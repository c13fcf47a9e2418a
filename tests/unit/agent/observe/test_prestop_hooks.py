"""A preStop hook in a frozen container, also one that runc has not made into the helper yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium_agent.observe.cgroups import Freezer
from podium_agent.observe.prestop_hooks import prestop_hook_pending

INIT = ("/usr/sbin/runc", "init")
EXEC = ("/usr/sbin/runc", "--root", "/run/runc", "exec", "--process", "/tmp/runc-process7", "--detach", "c1")
SHIM = ("/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io")
HOOK, SHELL = ["/podium/podium-gate", "hook"], ["/bin/sh", "-c", "podium-gate hook"]


def process(proc: Path, pid: int, words: tuple[str, ...], parent: int = 1, number: int = 40) -> None:
    place = proc / str(pid)
    place.mkdir()
    (place / "cmdline").write_bytes("".join(f"{word}\0" for word in words).encode())
    (place / "status").write_text(f"Name:\trunc:[2:INIT]\nPPid:\t{parent}\nNSpid:\t{pid}\t{number}\n")


CASES: dict[str, tuple[tuple[str, ...], int, tuple[str, ...], list[str] | None, bool]] = {
    # words, its number in its own pid namespace, its parent's words, what that is to run, expected
    "the helper": (tuple(HOOK), 40, SHIM, None, True),
    "the trial": (("python3", "train.py"), 1, SHIM, None, False),
    "runc's init of the hook": (INIT, 40, EXEC, HOOK, True),
    "runc's init of a user's shell": (INIT, 40, EXEC, SHELL, False),
    "its runc has ended: unknown, so it counts": (INIT, 40, SHIM, None, True),
    "runc has thrown away its description": (INIT, 40, EXEC, None, True),
    "by hand": (INIT, 40, ("runc", "exec", "c1", "sh"), None, False),
    "the container's own first process": (INIT, 1, SHIM, None, False),
}


@pytest.mark.parametrize(("words", "number", "parent", "described", "expected"), CASES.values(), ids=CASES.keys())
def test_a_hook_is_detected(
    tmp_path: Path, words: tuple[str, ...], number: int, parent: tuple[str, ...], described: object, expected: bool
) -> None:
    process(tmp_path, 10, parent)
    process(tmp_path, 11, words, 10, number)
    (tmp_path / "10" / "root" / "tmp").mkdir(parents=True)
    if described is not None:
        (tmp_path / "10" / "root" / "tmp" / "runc-process7").write_text(json.dumps({"args": described, "cwd": "/"}))
    (tmp_path / "cgroup.procs").write_text("11\n")
    assert prestop_hook_pending(tmp_path, Freezer(tmp_path, unified=False)) is expected


def test_a_process_of_the_tenant_named_runc_is_not_a_hook(tmp_path: Path) -> None:
    process(tmp_path, 10, ("runc", "exec", "--process", "/tmp/mine"), 9)
    process(tmp_path, 11, INIT, 10)
    (tmp_path / "cgroup.procs").write_text("10\n11\n")
    assert not prestop_hook_pending(tmp_path, Freezer(tmp_path, unified=False))
