"""Access to the fake driver of a node from outside the cluster: read its GPUs and inject faults.

Used by the tests of `cuda-checkpoint`. Nothing here depends on Podium.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that uses CUDA.

    `state` is RUNNING, LOCKED, CHECKPOINTED or FAILED. `bytes` is its memory. `resident`: it is on the GPU.
    """

    pid: int
    state: str
    bytes: int
    resident: bool


@dataclass(frozen=True, slots=True)
class GpuState:
    """The first GPU of a node: used and total bytes, and the processes that use CUDA there."""

    used: int
    total: int
    holders: tuple[Holder, ...]

    @property
    def states(self) -> list[str]:
        return sorted(holder.state for holder in self.holders)


@dataclass(frozen=True, slots=True)
class FakeDriver:
    """The fake driver of a node. `folder` is its folder, as this machine sees it."""

    folder: Path

    def read(self) -> GpuState:
        """Return the state of the first GPU."""
        lines = [line.split() for line in self._call("show").splitlines()]
        gpu = next(words for words in lines if words[0] == "0")
        used, total = gpu[gpu.index("memory") + 1].split("/")
        processes = [words for words in lines if words[0] == "process"]
        holders = (Holder(int(words[1]), words[4], int(words[6]), words[-1] != "off") for words in processes)
        return GpuState(int(used), int(total), tuple(holders))

    def on_gpus(self) -> dict[str, list[int]]:
        """Return the PIDs of the processes whose memory is on each GPU, by index."""
        found: dict[str, list[int]] = {}
        for words in map(str.split, self._call("show").splitlines()):
            if words[0] == "process" and words[-1] != "off":
                found.setdefault(words[3], []).append(int(words[1]))
        return found

    def occupy_memory(self, memory: int) -> None:
        """Let an unrelated process use `memory` bytes of the first GPU."""
        self._call("set", "0", f"memory={memory}")

    def set_checkpoint_faults(self, *assignments: str) -> None:
        """Inject faults and delays of checkpoints (see agent/driver/README.md)."""
        self._call("checkpoint", *assignments)

    def _call(self, *words: str) -> str:
        command = [str(self.folder / "bin/podium-fake-gpud"), *words]
        environment = {"FAKE_GPU_DIR": str(self.folder)}
        ran = subprocess.run(command, env=environment, check=True, timeout=30, capture_output=True, text=True)
        return ran.stdout
