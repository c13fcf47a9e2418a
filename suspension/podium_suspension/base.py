"""Interface of the suspension methods, as the executor uses it: suspend, resume, and report the state.

A method acts on all containers of a trial together: all or none. It does not raise for errors of a trial or of the
kernel. The outcome reports them with a code and a message. `tests/contract/test_suspension.py` checks every method.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from podium_core.schema.gpunode import INSUFFICIENT_NODE_RESOURCES
from podium_suspension.target import Target

# Bytes that must be free in addition to those that a restore brings back. Without them the driver loses the process.
# On an H100 with driver 580.159 a restore needed 4 to 6 MiB more than NVML had listed, for processes of 0.6 to 17 GB
# (benchmarks/results/bench-gpu-nvidia-h100-80gb-hbm3.md).
RESTORE_SCRATCH = 32 << 20
_SHORTAGES = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class SuspensionState(StrEnum):
    """State of a trial's processes, as the kernel reports it."""

    RUNNING = "Running"
    PARTLY_SUSPENDED = "PartlySuspended"  # some run, others are stopped or stopping: an agent ended half-way
    SUSPENDED = "Suspended"
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class SuspensionOutcome:
    """Result of one attempt to suspend or resume.

    `seconds` is its duration, `freed` the number of bytes of GPU memory that it released. `ended` are processes that
    ended during a call of the driver, or that Podium killed because the driver had lost them.
    """

    ok: bool
    seconds: float
    code: str
    message: str = ""
    freed: int = 0
    ended: tuple[int, ...] = ()

    @property
    def is_shortage(self) -> bool:
        """Return whether the failure says nothing about the method: the node had no resources to try it."""
        return self.code == INSUFFICIENT_NODE_RESOURCES


def outcome_of(error: OSError, seconds: float = 0.0) -> SuspensionOutcome:
    """Return the outcome of a call that the kernel refused."""
    code = INSUFFICIENT_NODE_RESOURCES if error.errno in _SHORTAGES else "FreezerRefused"
    place = f"{error.filename}: " if error.filename is not None else ""
    return SuspensionOutcome(False, seconds, code, f"{place}{error.strerror}")


class SuspensionMethod(Protocol):
    """A way to suspend and resume the containers of one trial."""

    @property
    def name(self) -> str:
        """Return the name by which jobs select this method."""
        ...

    async def suspend(self, targets: tuple[Target, ...]) -> SuspensionOutcome:
        """Stop all containers and verify that they stopped; on failure let all of them run again."""
        ...

    async def resume(self, targets: tuple[Target, ...]) -> SuspensionOutcome:
        """Continue all containers exactly where they stopped."""
        ...

    def suspension_state(self, targets: tuple[Target, ...]) -> SuspensionState:
        """Return the state of the containers.

        It is SUSPENDED only if every container that still has processes is verified to be stopped. Raises OSError
        if the state cannot be read now.
        """
        ...
