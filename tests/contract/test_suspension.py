"""What every suspension method must do, tried on real processes in real cgroups of this machine (v1 and v2).

A new method is added to `way`, a further kind of cgroup to KINDS. What `cuda-checkpoint` is tried on holds GPU memory:
of the fake driver, or with PODIUM_TEST_DRIVER=real of this machine's.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cuda_node import PROGRAM

from podium_agent.observe.cgroups import (
    Freezer,
    Frost,
    find_containers,
    find_leftovers,
    heeds_sigterm,
    peer_of,
    sigterm_waits,
)
from podium_agent.observe.prestop_hooks import hook_waits
from podium_agent.suspension.base import Standing, SuspensionMethod
from podium_agent.suspension.cuda import CudaDriver
from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.parked_memory import Parked
from podium_agent.suspension.processes import CudaProcesses

COUNTER = "import sys\nn = 0\nwhile True:\n    n += 1\n    sys.stdout.write(f'{n}\\n'); sys.stdout.flush()\n"
MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
MIB = 1 << 20
V2 = next((path for path in MOUNTS if (path / "cgroup.procs").exists()), None)
KINDS = {"v1": Path("/sys/fs/cgroup/freezer"), "v2": V2}


def cuda_checkpoint(folder: Path, library: str) -> SuspensionMethod:
    freeze = Freeze(5.0)
    return CudaCheckpoint(CudaProcesses(CudaDriver(library), 5.0, 20.0), freeze, Parked(folder / "parked"))


@dataclass
class Way:
    """A method, and what a process does that it is tried on."""

    method: SuspensionMethod
    command: list[str]


@dataclass
class Cell:
    """One container: a cgroup named as the kubelet names it, and a process in it that counts into a file."""

    freezer: Freezer
    container: str
    pod_uid: str
    process: subprocess.Popen[bytes]
    output: Path

    def count(self) -> int:
        return self.output.stat().st_size

    def grows(self, seconds: float = 30.0) -> bool:
        before, end = self.count(), time.monotonic() + seconds
        while time.monotonic() < end:
            if self.count() > before:
                return True
            time.sleep(0.002)
        return False


@pytest.fixture(params=["freeze", "cuda-checkpoint"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Way:
    if request.param == "freeze":
        return Way(Freeze(5.0), [sys.executable, "-c", COUNTER])
    library = request.getfixturevalue("cuda_node").library
    program = [sys.executable, "-S", "-E", "-c", PROGRAM, library, str(4 * MIB), "0", "0"]
    return Way(cuda_checkpoint(tmp_path, library), program)


@pytest.fixture(params=KINDS)
def cells(request: pytest.FixtureRequest, way: Way, tmp_path: Path) -> Iterator[list[Cell]]:
    root = KINDS[request.param]
    if os.geteuid() != 0 or root is None or not root.is_dir():
        pytest.skip(f"needs root and a cgroup {request.param} freezer")
    pod_uid = str(uuid.uuid4())
    pod = root / f"podium-test-{os.getpid()}" / f"pod{pod_uid}"
    made = []
    for number in range(2):
        container = os.urandom(32).hex()
        path = pod / container
        path.mkdir(parents=True)
        output = tmp_path / f"out{number}"
        with output.open("wb") as file:
            process = subprocess.Popen(way.command, stdout=file)
        (path / "cgroup.procs").write_text(str(process.pid))
        made.append(Cell(Freezer(path, request.param == "v2"), container, pod_uid, process, output))
    for cell in made:
        assert cell.grows(), "it does not begin"
    yield made
    for cell in made:
        cell.freezer.ask(False)
        cell.process.kill()
        cell.process.wait(10)
    for path in (*(cell.freezer.path for cell in made), pod, pod.parent):
        for _ in range(500):  # the kernel lets go of a cgroup a moment after its last process
            try:
                path.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)


@pytest.fixture
def method(way: Way) -> SuspensionMethod:
    return way.method


def freezers(cells: list[Cell]) -> tuple[Freezer, ...]:
    return tuple(cell.freezer for cell in cells)


def test_suspended_means_verified_stopped_and_resumed_goes_on(cells: list[Cell], method: SuspensionMethod) -> None:
    assert all(cell.grows() for cell in cells)
    assert method.standing(freezers(cells)) is Standing.WORKING
    outcome = asyncio.run(method.suspend(freezers(cells)))
    counts = [cell.count() for cell in cells]
    assert outcome.ok, outcome
    assert 0 <= outcome.seconds < 5
    assert method.standing(freezers(cells)) is Standing.PARKED
    time.sleep(0.2)
    assert [cell.count() for cell in cells] == counts, "a suspended process worked"
    assert asyncio.run(method.resume(freezers(cells))).ok
    assert method.standing(freezers(cells)) is Standing.WORKING
    assert all(cell.grows() for cell in cells)


def test_both_are_idempotent(cells: list[Cell], method: SuspensionMethod) -> None:
    for _ in range(2):
        assert asyncio.run(method.suspend(freezers(cells))).ok
    for _ in range(2):
        assert asyncio.run(method.resume(freezers(cells))).ok
    assert all(cell.grows() for cell in cells)


def test_a_process_that_has_ended_is_no_failure(cells: list[Cell], method: SuspensionMethod) -> None:
    cells[0].process.kill()
    cells[0].process.wait(10)
    assert asyncio.run(method.suspend(freezers(cells))).ok
    assert method.standing(freezers(cells)) is Standing.PARKED, "the other one is stopped"
    cells[1].process.kill()
    assert asyncio.run(method.resume(freezers(cells))).ok
    cells[1].process.wait(10)
    assert method.standing(freezers(cells)) is Standing.GONE


@pytest.mark.parametrize("finish", ["suspend", "resume"])
def test_what_an_agent_left_half_done_is_seen_and_can_be_finished_either_way(
    cells: list[Cell], method: SuspensionMethod, finish: str
) -> None:
    """Killed between the two containers of a trial, suspending or resuming: one is stopped, the other works."""
    assert asyncio.run(method.suspend(freezers(cells)[:1])).ok
    assert method.standing(freezers(cells)) is Standing.PARTLY_SUSPENDED
    assert asyncio.run(getattr(method, finish)(freezers(cells))).ok
    if finish == "suspend":
        assert method.standing(freezers(cells)) is Standing.PARKED
        assert asyncio.run(method.resume(freezers(cells))).ok
    assert method.standing(freezers(cells)) is Standing.WORKING
    assert all(cell.grows() for cell in cells)


def test_a_suspension_that_is_cancelled_leaves_all_at_work(cells: list[Cell], method: SuspensionMethod) -> None:
    async def cancel() -> None:
        task = asyncio.ensure_future(method.suspend(freezers(cells)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():  # it was quicker
            assert (await method.resume(freezers(cells))).ok

    asyncio.run(cancel())
    assert all(cell.grows() for cell in cells)


def test_a_kill_ends_a_suspended_process_once_it_is_resumed(cells: list[Cell], method: SuspensionMethod) -> None:
    assert asyncio.run(method.suspend(freezers(cells))).ok
    cells[0].process.send_signal(signal.SIGTERM)
    assert asyncio.run(method.resume(freezers(cells))).ok
    assert cells[0].process.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("unified", [False, True])
def test_a_freezer_that_cannot_be_read_is_no_proof_of_an_end(
    tmp_path: Path, method: SuspensionMethod, unified: bool
) -> None:
    """A folder in place of the file that tells who is left: like EMFILE or EACCES, and not like a cgroup removed."""
    (tmp_path / ("cgroup.events" if unified else "cgroup.procs")).mkdir()
    target = Freezer(tmp_path, unified)
    for outcome in (asyncio.run(method.suspend((target,))), asyncio.run(method.resume((target,)))):
        assert (outcome.ok, outcome.code) == (False, "FreezerRefused")
    with pytest.raises(IsADirectoryError):
        method.standing((target,))
    assert method.standing((Freezer(tmp_path / "removed", unified),)) is Standing.GONE


def test_a_child_that_is_removed_says_nothing_of_its_siblings(tmp_path: Path) -> None:
    """v1, where one must look for processes: a trial may make and remove cgroups below its own at any moment."""
    (tmp_path / "freezer.state").write_text("THAWED\n")
    (tmp_path / "cgroup.procs").write_text("")
    for number in range(20):
        (tmp_path / f"removed-{number}").mkdir()  # no cgroup.procs: as if gone between two reads
    assert Freezer(tmp_path, unified=False).frost() is Frost.GONE
    (tmp_path / "with-a-process").mkdir()
    (tmp_path / "with-a-process" / "cgroup.procs").write_text("1\n")
    assert Freezer(tmp_path, unified=False).frost() is Frost.THAWED


def test_what_fails_unexpectedly_leaves_all_at_work(tmp_path: Path, method: SuspensionMethod) -> None:
    (tmp_path / "cgroup.events").write_text("populated\n")
    with pytest.raises(ValueError):
        asyncio.run(method.suspend((Freezer(tmp_path, unified=True),)))
    assert (tmp_path / "cgroup.freeze").read_text() == "0"


def test_containers_are_found_by_their_id(cells: list[Cell]) -> None:
    ids = frozenset(cell.container for cell in cells)
    found = find_containers(Path("/proc"), Path("/sys/fs/cgroup"), ids | {"0" * 64})
    assert {name: container.pid for name, container in found.items()} == {c.container: c.process.pid for c in cells}
    assert all(found[cell.container].freezer.frost() is Frost.THAWED for cell in cells)
    peer = peer_of(Path("/proc"), cells[0].process.pid)
    assert peer is not None
    assert (peer.pod_uid, peer.container) == (cells[0].pod_uid, cells[0].container)
    assert peer_of(Path("/proc"), os.getpid()) is None


def test_what_is_left_of_a_pod_is_found_by_its_uid(cells: list[Cell], tmp_path: Path) -> None:
    """The API may have forgotten the pod, and with it the ids of its containers. Its sandbox says nothing."""
    proc, root = Path("/proc"), Path("/sys/fs/cgroup")
    pods = frozenset({cells[0].pod_uid, str(uuid.uuid4())})

    def left() -> set[str]:
        return {one.id for found in find_leftovers(proc, root, pods).values() for one in found}

    assert left() == {cell.container for cell in cells}
    cells[0].process.kill()
    cells[0].process.wait(10)
    assert left() == {cells[1].container}
    sandbox = tmp_path / "pause"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", sandbox)
    cells[0].process = subprocess.Popen([str(sandbox), "60"])
    comm, end = proc / str(cells[0].process.pid) / "comm", time.monotonic() + 300
    while comm.read_text() != "pause\n":  # the kernel names a program a moment after Popen heard that it began
        assert time.monotonic() < end
    (cells[0].freezer.path / "cgroup.procs").write_text(str(cells[0].process.pid))
    assert left() == {cells[1].container}


def test_who_has_ended_does_not_stay_frozen(cells: list[Cell], method: SuspensionMethod) -> None:
    """A process may end in the moment of its suspension; containerd cannot remove a container that is paused."""
    ended, other = cells
    ended.process.kill()
    ended.process.wait(10)
    assert asyncio.run(method.suspend(freezers(cells))).ok
    name, thawed = ("cgroup.freeze", "0") if ended.freezer.unified else ("freezer.state", "THAWED")
    assert (ended.freezer.path / name).read_text().strip() == thawed
    assert other.freezer.frost() is Frost.FROZEN
    assert asyncio.run(method.resume(freezers(cells))).ok


HANDLER = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print(); time.sleep(60)"


def test_a_sigterm_waits_for_who_is_frozen(cells: list[Cell], method: SuspensionMethod) -> None:
    """As a kubelet sends it that ends a pod of its own accord; there is no other sign of that. (v2 lets a signal that
    nobody handles end a frozen process.)
    """
    with subprocess.Popen([sys.executable, "-u", "-c", HANDLER], stdout=subprocess.PIPE) as told:
        assert told.stdout is not None
        told.stdout.readline()
        (cells[0].freezer.path / "cgroup.procs").write_text(str(told.pid))
        assert asyncio.run(method.suspend(freezers(cells))).ok
        assert not sigterm_waits(Path("/proc"), told.pid)
        told.terminate()
        assert sigterm_waits(Path("/proc"), told.pid)
        assert not sigterm_waits(Path("/proc"), cells[1].process.pid)
        assert asyncio.run(method.resume(freezers(cells))).ok
        assert told.wait(10) == 7
        assert not sigterm_waits(Path("/proc"), told.pid)


def test_a_hook_is_seen_in_who_is_frozen(cells: list[Cell], method: SuspensionMethod, tmp_path: Path) -> None:
    """A kubelet sends its SIGTERM only after it."""
    (tmp_path / "hook").write_text("import sys; print(flush=True); sys.stdin.read()")
    words, python = ["/podium/podium-gate", "hook"], Path(sys.executable).resolve()
    with subprocess.Popen(
        words, executable=python, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as hook:
        assert hook.stdout is not None
        hook.stdout.readline()
        (cells[0].freezer.path / "cgroup.procs").write_text(str(hook.pid))
        assert asyncio.run(method.suspend(freezers(cells))).ok
        assert [hook_waits(Path("/proc"), cell.freezer) for cell in cells] == [True, False]
        assert asyncio.run(method.resume(freezers(cells))).ok
        hook.communicate(timeout=300)
    assert not hook_waits(Path("/proc"), cells[0].freezer)


def test_who_would_hear_sigterm(cells: list[Cell]) -> None:
    assert heeds_sigterm(Path("/proc"), cells[0].process.pid), "not pid 1: the default action ends it"
    deaf = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    )
    try:
        end, child = time.monotonic() + 300, ""
        while time.monotonic() < end and not child:
            child = Path(f"/proc/{deaf.pid}/task/{deaf.pid}/children").read_text().strip()
        assert not heeds_sigterm(Path("/proc"), int(child)), "pid 1 without a handler"
    finally:
        deaf.kill()
        deaf.communicate(timeout=300)
