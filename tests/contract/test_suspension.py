"""Contract of every suspension method, on real processes in real cgroups of this machine (v1 and v2).

Add a new method to the fixture `method_setup`, and a further kind of cgroup to KINDS. The processes for
`cuda-checkpoint` hold memory of the fake driver's GPU, or of a real one with PODIUM_TEST_DRIVER=real.
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

from podium_agent.observe.cgroup_paths import peer_of
from podium_agent.observe.cgroups import (
    Freezer,
    find_containers,
    find_remaining_containers,
    handles_sigterm,
    sigterm_pending,
)
from podium_agent.observe.prestop_hooks import prestop_hook_pending
from podium_suspension.base import SuspensionMethod, SuspensionState
from podium_suspension.cuda import CudaDriver
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.processes import CudaProcesses
from podium_suspension.target import FreezerState

COUNTER = "import sys\nn = 0\nwhile True:\n    n += 1\n    sys.stdout.write(f'{n}\\n'); sys.stdout.flush()\n"
MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
MIB = 1 << 20
V2 = next((path for path in MOUNTS if (path / "cgroup.procs").exists()), None)
KINDS = {"v1": Path("/sys/fs/cgroup/freezer"), "v2": V2}


def cuda_checkpoint(folder: Path, library: str) -> SuspensionMethod:
    freeze = Freeze(5.0)
    return CudaCheckpoint(CudaProcesses(CudaDriver(library), 5.0, 20.0), freeze, GpuStateNotes(folder / "gpu-state"))


@dataclass
class MethodSetup:
    """A method, and the command of the processes that it suspends."""

    method: SuspensionMethod
    command: list[str]


@dataclass
class CountingContainer:
    """A container: a cgroup with a name like the kubelet's, and a process in it that counts into a file."""

    freezer: Freezer
    container_id: str
    pod_uid: str
    process: subprocess.Popen[bytes]
    output: Path

    def count(self) -> int:
        """Return the bytes that the process has written."""
        return self.output.stat().st_size

    def grows(self, seconds: float = 30.0) -> bool:
        """Return whether the process writes within `seconds`."""
        before, end = self.count(), time.monotonic() + seconds
        while time.monotonic() < end:
            if self.count() > before:
                return True
            time.sleep(0.002)
        return False


@pytest.fixture(params=["freeze", "cuda-checkpoint"])
def method_setup(request: pytest.FixtureRequest, tmp_path: Path) -> MethodSetup:
    if request.param == "freeze":
        return MethodSetup(Freeze(5.0), [sys.executable, "-c", COUNTER])
    library = request.getfixturevalue("cuda_node").library
    program = [sys.executable, "-S", "-E", "-c", PROGRAM, library, str(4 * MIB), "0", "0"]
    return MethodSetup(cuda_checkpoint(tmp_path, library), program)


@pytest.fixture(params=KINDS)
def containers(
    request: pytest.FixtureRequest, method_setup: MethodSetup, tmp_path: Path
) -> Iterator[list[CountingContainer]]:
    root = KINDS[request.param]
    if os.geteuid() != 0 or root is None or not root.is_dir():
        pytest.skip(f"needs root and a cgroup {request.param} freezer")
    pod_uid = str(uuid.uuid4())
    pod = root / f"podium-test-{os.getpid()}" / f"pod{pod_uid}"
    created = []
    for number in range(2):
        container_id = os.urandom(32).hex()
        path = pod / container_id
        path.mkdir(parents=True)
        output = tmp_path / f"out{number}"
        with output.open("wb") as file:
            process = subprocess.Popen(method_setup.command, stdout=file)
        (path / "cgroup.procs").write_text(str(process.pid))
        created.append(CountingContainer(Freezer(path, request.param == "v2"), container_id, pod_uid, process, output))
    for container in created:
        assert container.grows(), "the process does not start"
    yield created
    for container in created:
        container.freezer.ask(False)
        container.process.kill()
        container.process.wait(10)
    for path in (*(container.freezer.path for container in created), pod, pod.parent):
        for _ in range(500):  # the kernel releases a cgroup a moment after its last process ends
            try:
                path.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)


@pytest.fixture
def method(method_setup: MethodSetup) -> SuspensionMethod:
    return method_setup.method


def freezers(containers: list[CountingContainer]) -> tuple[Freezer, ...]:
    return tuple(container.freezer for container in containers)


def test_suspended_processes_stop_and_resumed_ones_continue(
    containers: list[CountingContainer], method: SuspensionMethod
) -> None:
    assert all(container.grows() for container in containers)
    assert method.suspension_state(freezers(containers)) is SuspensionState.RUNNING
    outcome = asyncio.run(method.suspend(freezers(containers)))
    counts = [container.count() for container in containers]
    assert outcome.ok, outcome
    assert 0 <= outcome.seconds < 5
    assert method.suspension_state(freezers(containers)) is SuspensionState.SUSPENDED
    time.sleep(0.2)
    assert [container.count() for container in containers] == counts, "a suspended process ran"
    assert asyncio.run(method.resume(freezers(containers))).ok
    assert method.suspension_state(freezers(containers)) is SuspensionState.RUNNING
    assert all(container.grows() for container in containers)


def test_suspend_and_resume_are_idempotent(containers: list[CountingContainer], method: SuspensionMethod) -> None:
    for _ in range(2):
        assert asyncio.run(method.suspend(freezers(containers))).ok
    for _ in range(2):
        assert asyncio.run(method.resume(freezers(containers))).ok
    assert all(container.grows() for container in containers)


def test_an_ended_process_is_not_a_failure(containers: list[CountingContainer], method: SuspensionMethod) -> None:
    containers[0].process.kill()
    containers[0].process.wait(10)
    assert asyncio.run(method.suspend(freezers(containers))).ok
    assert method.suspension_state(freezers(containers)) is SuspensionState.SUSPENDED, "the other process is stopped"
    containers[1].process.kill()
    assert asyncio.run(method.resume(freezers(containers))).ok
    containers[1].process.wait(10)
    assert method.suspension_state(freezers(containers)) is SuspensionState.GONE


@pytest.mark.parametrize("finish", ["suspend", "resume"])
def test_an_interrupted_suspension_can_be_completed_or_undone(
    containers: list[CountingContainer], method: SuspensionMethod, finish: str
) -> None:
    """The agent was killed between the two containers of a trial: one is suspended, the other runs."""
    assert asyncio.run(method.suspend(freezers(containers)[:1])).ok
    assert method.suspension_state(freezers(containers)) is SuspensionState.PARTLY_SUSPENDED
    assert asyncio.run(getattr(method, finish)(freezers(containers))).ok
    if finish == "suspend":
        assert method.suspension_state(freezers(containers)) is SuspensionState.SUSPENDED
        assert asyncio.run(method.resume(freezers(containers))).ok
    assert method.suspension_state(freezers(containers)) is SuspensionState.RUNNING
    assert all(container.grows() for container in containers)


def test_after_a_cancelled_suspension_all_processes_run(
    containers: list[CountingContainer], method: SuspensionMethod
) -> None:
    async def cancel() -> None:
        task = asyncio.ensure_future(method.suspend(freezers(containers)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():  # the suspension was faster than the cancellation
            assert (await method.resume(freezers(containers))).ok

    asyncio.run(cancel())
    assert all(container.grows() for container in containers)


def test_a_signal_ends_a_suspended_process_once_it_is_resumed(
    containers: list[CountingContainer], method: SuspensionMethod
) -> None:
    assert asyncio.run(method.suspend(freezers(containers))).ok
    containers[0].process.send_signal(signal.SIGTERM)
    assert asyncio.run(method.resume(freezers(containers))).ok
    assert containers[0].process.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("unified", [False, True])
def test_an_unreadable_freezer_does_not_count_as_gone(tmp_path: Path, method: SuspensionMethod, unified: bool) -> None:
    """A folder replaces the file that lists the processes: reading fails as with EMFILE or EACCES."""
    (tmp_path / ("cgroup.events" if unified else "cgroup.procs")).mkdir()
    target = Freezer(tmp_path, unified)
    for outcome in (asyncio.run(method.suspend((target,))), asyncio.run(method.resume((target,)))):
        assert (outcome.ok, outcome.code) == (False, "FreezerRefused")
    with pytest.raises(IsADirectoryError):
        method.suspension_state((target,))
    assert method.suspension_state((Freezer(tmp_path / "removed", unified),)) is SuspensionState.GONE


def test_a_removed_child_cgroup_does_not_hide_its_siblings(tmp_path: Path) -> None:
    """In cgroup v1 the agent searches for processes, while a trial may create and remove child cgroups."""
    (tmp_path / "freezer.state").write_text("THAWED\n")
    (tmp_path / "cgroup.procs").write_text("")
    for number in range(20):
        (tmp_path / f"removed-{number}").mkdir()  # without cgroup.procs, as if removed between two reads
    assert Freezer(tmp_path, unified=False).frost() is FreezerState.GONE
    (tmp_path / "with-a-process").mkdir()
    (tmp_path / "with-a-process" / "cgroup.procs").write_text("1\n")
    assert Freezer(tmp_path, unified=False).frost() is FreezerState.THAWED


def test_after_an_unexpected_error_all_processes_run(tmp_path: Path, method: SuspensionMethod) -> None:
    (tmp_path / "cgroup.events").write_text("populated\n")
    with pytest.raises(ValueError):
        asyncio.run(method.suspend((Freezer(tmp_path, unified=True),)))
    assert (tmp_path / "cgroup.freeze").read_text() == "0"


def test_containers_are_found_by_their_id(containers: list[CountingContainer]) -> None:
    ids = frozenset(container.container_id for container in containers)
    by_id = find_containers(Path("/proc"), Path("/sys/fs/cgroup"), ids | {"0" * 64})
    assert {name: container.pid for name, container in by_id.items()} == {
        c.container_id: c.process.pid for c in containers
    }
    assert all(by_id[container.container_id].freezer.frost() is FreezerState.THAWED for container in containers)
    peer = peer_of(Path("/proc"), containers[0].process.pid)
    assert peer is not None
    assert (peer.pod_uid, peer.container) == (containers[0].pod_uid, containers[0].container_id)
    assert peer_of(Path("/proc"), os.getpid()) is None


def test_leftover_containers_are_found_by_the_pods_uid(containers: list[CountingContainer], tmp_path: Path) -> None:
    """The pod, and with it the ids of its containers, may be gone from the API. The sandbox does not count."""
    proc, root = Path("/proc"), Path("/sys/fs/cgroup")
    pods = frozenset({containers[0].pod_uid, str(uuid.uuid4())})

    def leftovers() -> set[str]:
        return {
            container.id
            for leftovers_of_pod in find_remaining_containers(proc, root, pods).values()
            for container in leftovers_of_pod
        }

    assert leftovers() == {container.container_id for container in containers}
    containers[0].process.kill()
    containers[0].process.wait(10)
    assert leftovers() == {containers[1].container_id}
    sandbox = tmp_path / "pause"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", sandbox)
    containers[0].process = subprocess.Popen([str(sandbox), "60"])
    comm, end = proc / str(containers[0].process.pid) / "comm", time.monotonic() + 300
    while comm.read_text() != "pause\n":  # the kernel sets the name a moment after Popen returns
        assert time.monotonic() < end
    (containers[0].freezer.path / "cgroup.procs").write_text(str(containers[0].process.pid))
    assert leftovers() == {containers[1].container_id}


def test_the_cgroup_of_an_ended_process_is_thawed(
    containers: list[CountingContainer], method: SuspensionMethod
) -> None:
    """A process may end during its suspension, and containerd cannot remove a paused container."""
    ended, other = containers
    ended.process.kill()
    ended.process.wait(10)
    assert asyncio.run(method.suspend(freezers(containers))).ok
    name, thawed = ("cgroup.freeze", "0") if ended.freezer.unified else ("freezer.state", "THAWED")
    assert (ended.freezer.path / name).read_text().strip() == thawed
    assert other.freezer.frost() is FreezerState.FROZEN
    assert asyncio.run(method.resume(freezers(containers))).ok


HANDLER = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print(); time.sleep(60)"


def test_a_pending_sigterm_of_a_frozen_process_is_detected(
    containers: list[CountingContainer], method: SuspensionMethod
) -> None:
    """A kubelet that ends a pod on its own sends SIGTERM, and nothing else shows that it does.

    The process handles the signal, because cgroup v2 lets an unhandled signal end a frozen process.
    """
    with subprocess.Popen([sys.executable, "-u", "-c", HANDLER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (containers[0].freezer.path / "cgroup.procs").write_text(str(process.pid))
        assert asyncio.run(method.suspend(freezers(containers))).ok
        assert not sigterm_pending(Path("/proc"), process.pid)
        process.terminate()
        assert sigterm_pending(Path("/proc"), process.pid)
        assert not sigterm_pending(Path("/proc"), containers[1].process.pid)
        assert asyncio.run(method.resume(freezers(containers))).ok
        assert process.wait(10) == 7
        assert not sigterm_pending(Path("/proc"), process.pid)


def test_a_waiting_hook_in_a_frozen_container_is_detected(
    containers: list[CountingContainer], method: SuspensionMethod, tmp_path: Path
) -> None:
    """A kubelet sends SIGTERM only after the hook."""
    (tmp_path / "hook").write_text("import sys; print(flush=True); sys.stdin.read()")
    command, python = ["/podium/podium-gate", "hook"], Path(sys.executable).resolve()
    with subprocess.Popen(
        command, executable=python, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as hook:
        assert hook.stdout is not None
        hook.stdout.readline()
        (containers[0].freezer.path / "cgroup.procs").write_text(str(hook.pid))
        assert asyncio.run(method.suspend(freezers(containers))).ok
        assert [prestop_hook_pending(Path("/proc"), container.freezer) for container in containers] == [True, False]
        assert asyncio.run(method.resume(freezers(containers))).ok
        hook.communicate(timeout=300)
    assert not prestop_hook_pending(Path("/proc"), containers[0].freezer)


def test_processes_that_handle_sigterm_are_recognised(containers: list[CountingContainer]) -> None:
    assert handles_sigterm(Path("/proc"), containers[0].process.pid), (
        "the default action ends a process that is not pid 1"
    )
    namespace = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    )
    try:
        end, child = time.monotonic() + 300, ""
        while time.monotonic() < end and not child:
            child = Path(f"/proc/{namespace.pid}/task/{namespace.pid}/children").read_text().strip()
        assert not handles_sigterm(Path("/proc"), int(child)), "pid 1 ignores signals without a handler"
    finally:
        namespace.kill()
        namespace.communicate(timeout=300)
