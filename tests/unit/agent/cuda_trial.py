"""A trial of two processes on a GPU, real processes and cgroups, and an agent's method for them. Used by
test_cuda_checkpoint, test_cuda_moves and test_cuda_arrivals.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cuda_node import until

from podium_agent.observe.cgroups import Freezer
from podium_suspension import processes as cuda_processes
from podium_suspension.base import SuspensionOutcome, SuspensionState
from podium_suspension.cuda import CudaDriver
from podium_suspension.cuda_checkpoint import NO_GPU_MAP, CudaCheckpoint
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_memory import GpuMemory, read_memory
from podium_suspension.gpu_state_notes import GpuState, GpuStateNotes
from podium_suspension.processes import CudaProcesses

SIZE = 4 << 20
V1, V2 = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")


@dataclass
class Trial:
    """Two processes, in a container each or together in one, and an agent's method for them."""

    node: Any
    folder: Path
    programs: list[Any]
    targets: tuple[Freezer, ...]
    method: CudaCheckpoint
    waits: tuple[float, float] = (20.0, 60.0)  # seconds, for a lock and for a copy: also where the machine is busy

    def gives_up_soon(self, fault: str) -> None:
        """For a fault whose call never ends. The other calls of both processes keep their time."""
        self.waits = (0.2, self.waits[1]) if fault in ("busy=1", "hang=lock") else (self.waits[0], 1.0)
        self.method = self.fresh()

    def fresh(self, memory: Callable[[], GpuMemory] = read_memory) -> CudaCheckpoint:
        """The method of an agent that has just started: it has the notes of the one before."""
        processes = CudaProcesses(CudaDriver(self.node.library), *self.waits)
        return CudaCheckpoint(processes, Freeze(5.0), GpuStateNotes(self.folder / "gpu-state"), memory)

    def suspend(self) -> SuspensionOutcome:
        return asyncio.run(self.method.suspend(self.targets))

    def resume(self, gpu_map: Mapping[str, str] = NO_GPU_MAP) -> SuspensionOutcome:
        return asyncio.run(self.method.resume(self.targets, gpu_map))

    @property
    def suspension_state(self) -> SuspensionState:
        return self.method.suspension_state(self.targets)

    def fault(self, *assignments: str) -> None:
        """On the second process."""
        self.node.fault(f"pid={self.programs[1].pid}", *assignments)

    def held(self) -> int:
        """Bytes that its processes hold now."""
        return sum(read_memory().held_by(frozenset(program.pid for program in self.programs)).values())

    def on(self) -> list[dict[str, int]]:
        """What each process holds on which GPU."""
        memory = read_memory()
        return [dict(memory.held_by(frozenset({program.pid}))) for program in self.programs]

    def two_gpus(self) -> tuple[str, str]:
        """Where its programs are (the first GPU), and another one."""
        (home,) = read_memory().held_by(frozenset(program.pid for program in self.programs))
        others = sorted(read_memory().free.keys() - {home})
        if not others:
            pytest.skip("one GPU")
        return home, others[0]

    def all_work(self) -> bool:
        """Return whether all processes continue without a lost or repeated step."""
        return all(program.continues() and program.steps() for program in self.programs)


@contextmanager
def running(node: Any, folder: Path, containers: int) -> Iterator[Trial]:
    """Run two processes in this number of containers."""
    unified = not V1.is_dir()
    root = (V2 if unified else V1) / f"podium-cuda-{uuid.uuid4().hex[:8]}"
    targets = tuple(Freezer(root / f"container-{number}", unified) for number in range(containers))
    for target in targets:
        target.path.mkdir(parents=True)
    programs = [node.start(SIZE) for _ in range(2)]
    for number, program in enumerate(programs):
        (targets[number % containers].path / "cgroup.procs").write_text(str(program.pid))
    made = Trial(node, folder, programs, targets, None)  # type: ignore[arg-type]
    made.method = made.fresh()
    yield made
    node.clear_faults()
    for target in targets:
        target.ask(False)
    for program in programs:
        program.end()

    def removed(path: Path) -> bool:
        with suppress(OSError):
            path.rmdir()
        return not path.exists()

    for path in (*(target.path for target in targets), root):
        until(lambda path=path: removed(path), "an empty cgroup")


@pytest.fixture
def trial(cuda_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    """Each process in a container of its own."""
    monkeypatch.setattr(cuda_processes, "GRACE_SECONDS", 0.1)
    with running(cuda_node, tmp_path, 2) as made:
        yield made


@pytest.fixture
def together(cuda_node: Any, tmp_path: Path) -> Iterator[Trial]:
    """Both processes in one container."""
    with running(cuda_node, tmp_path, 1) as made:
        yield made


def restored(trial: Trial, known: int = 1) -> tuple[str, str]:
    """Suspended, and found as a container is that has come from another node; (the GPU that it left, the one here)."""
    memory = read_memory()
    if len(memory.free) < 2:
        pytest.skip("it takes two GPUs to come back on another one")
    (old,) = memory.held_by(frozenset(program.pid for program in trial.programs))
    new = next(uuid for uuid in memory.free if uuid != old)
    assert trial.suspend().ok
    left = GpuStateNotes(trial.folder / "gpu-state")
    for target in trial.targets:
        gpu_state = GpuState(gpus=dict(left.held_bytes(target.name)), processes=known)
        left.remove(target.name)
        left.add_migrated(target.name, gpu_state, (new,))
        target.ask(False)
    trial.method = trial.fresh()
    until(
        lambda: trial.suspension_state is SuspensionState.PARTLY_SUSPENDED, "its processes run and wait for their GPU"
    )
    return old, new
