"""PyTorch trials in cgroups of their own on a real GPU, and the agent's method on them, for bench_gpu."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from podium_agent.observe.cgroups import Freezer
from podium_agent.schedule.memory_ledger import Footprint, shortfall
from podium_suspension.cuda import CudaDriver
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.gpu_memory import read_memory
from podium_suspension.gpu_state_notes import GpuStateNotes

TRIAL = Path(__file__).resolve().with_name("torch_trial.py")
V2 = Path("/sys/fs/cgroup")
V1 = V2 / "freezer"


@dataclass(frozen=True, slots=True)
class Trial:
    """One running torch_trial.py in a cgroup of its own."""

    process: subprocess.Popen[bytes]
    output: Path
    freezer: Freezer

    def lines(self) -> list[str]:
        """Return the whole lines that it has printed."""
        return [line for line in self.output.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, count: int, seconds: float = 120.0) -> None:
        """Wait until the trial has printed `count` lines."""
        deadline = time.monotonic() + seconds
        while len(self.lines()) < count:
            assert self.process.poll() in (None, 0), f"the trial ended: {self.process.returncode}"
            assert time.monotonic() < deadline, f"{count} lines: not within {seconds} s"
            time.sleep(0.005)

    def charged(self) -> int:
        """Return the bytes in its memory cgroup; 0 where the machine has no such controller."""
        try:
            return int((self.freezer.path / "memory.current").read_text())
        except FileNotFoundError:
            return 0


class TimedDriver(CudaDriver):
    """The driver, with `spent`: seconds in the calls that suspend or resume."""

    spent = 0.0

    def _timed(self, call: Callable[[], None]) -> None:
        begin = time.perf_counter()
        call()
        self.spent += time.perf_counter() - begin

    def lock(self, pid: int, seconds: float) -> None:
        self._timed(lambda: super(TimedDriver, self).lock(pid, seconds))

    def checkpoint(self, pid: int) -> None:
        self._timed(lambda: super(TimedDriver, self).checkpoint(pid))

    def restore(self, pid: int, gpu_map: Mapping[str, str] | None = None) -> None:
        self._timed(lambda: super(TimedDriver, self).restore(pid, gpu_map))

    def unlock(self, pid: int) -> None:
        self._timed(lambda: super(TimedDriver, self).unlock(pid))


@dataclass(frozen=True, slots=True)
class Bench:
    """The GPU under test, and what trials on it need. `total`: bytes of its memory."""

    driver: TimedDriver
    method: CudaCheckpoint
    notes: GpuStateNotes
    folder: Path
    uuid: str
    total: int

    @contextmanager
    def trial(self, steps: int, gibibytes: float, seed: int = 1, workers: int = 0) -> Iterator[Trial]:
        """Run a trial for the block."""
        unified = not V1.is_dir()
        cgroup = (V2 if unified else V1) / f"podium-bench-{os.getpid()}-{time.monotonic_ns()}"
        cgroup.mkdir()
        output = self.folder / cgroup.name
        command = [sys.executable, str(TRIAL), *map(str, (steps, gibibytes, seed, workers))]
        with output.open("wb") as file:
            join = f'echo $$ > {cgroup}/cgroup.procs && exec "$@"'
            process = subprocess.Popen(["sh", "-c", join, "sh", *command], stdout=file)
        made = Trial(process, output, Freezer(cgroup, unified))
        try:
            yield made
        finally:
            made.freezer.ask(False)
            process.kill()
            process.wait(60)
            for _ in range(1000):
                try:
                    cgroup.rmdir()
                    break
                except OSError:
                    time.sleep(0.01)

    async def suspend(self, trial: Trial) -> float:
        """Suspend the trial by the agent's method; return the seconds."""
        begin = time.perf_counter()
        outcome = await self.method.suspend((trial.freezer,))
        assert outcome.ok, outcome
        assert outcome.code == "Checkpointed", outcome
        return time.perf_counter() - begin

    async def resume(self, trial: Trial) -> float:
        """Resume the trial by the agent's method, with the memory ledger's check before; return the seconds."""
        begin = time.perf_counter()
        moved = self.notes.held_bytes(trial.freezer.name)
        memory = await asyncio.to_thread(read_memory)
        assert shortfall(Footprint("trial", tuple(moved), off_gpu=moved), (), memory.free) is None
        outcome = await self.method.resume((trial.freezer,))
        assert outcome.ok, outcome
        return time.perf_counter() - begin
