"""The fake driver of one node, asked and told from outside of the cluster: what is on its GPUs, and who takes memory.

Used by the tests of `cuda-checkpoint`. Nothing here asks Podium.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Holder:
    """A process with CUDA: its state (RUNNING, LOCKED, CHECKPOINTED, FAILED), the bytes that it holds or gave up, and
    whether they are on the GPU."""

    pid: int
    state: str
    bytes: int
    resident: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """The node's first GPU: bytes in use (a stranger's too) of how many, and who holds CUDA there."""

    used: int
    total: int
    holders: tuple[Holder, ...]

    @property
    def states(self) -> list[str]:
        return sorted(holder.state for holder in self.holders)


@dataclass(frozen=True, slots=True)
class FakeDriver:
    """`folder`: of the node's fake driver, as this machine sees it."""

    folder: Path

    def look(self) -> Seen:
        lines = [line.split() for line in self._call("show").splitlines()]
        gpu = next(words for words in lines if words[0] == "0")
        used, total = gpu[gpu.index("memory") + 1].split("/")
        said = [words for words in lines if words[0] == "process"]
        holders = (Holder(int(words[1]), words[4], int(words[6]), words[-1] != "off") for words in said)
        return Seen(int(used), int(total), tuple(holders))

    def stranger(self, memory: int) -> None:
        """Somebody who is no trial has so many bytes of the first GPU."""
        self._call("set", "0", f"memory={memory}")

    def checkpoints(self, *assignments: str) -> None:
        """How long moves take, and what goes wrong with them (agent/driver/README.md)."""
        self._call("checkpoint", *assignments)

    def _call(self, *words: str) -> str:
        command = [str(self.folder / "bin/podium-fake-gpud"), *words]
        environment = {"FAKE_GPU_DIR": str(self.folder)}
        ran = subprocess.run(command, env=environment, check=True, timeout=30, capture_output=True, text=True)
        return ran.stdout
