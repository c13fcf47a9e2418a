"""What a suspension method acts on: processes that are stopped and continued together.

On a cluster it is the cgroup of a container (`podium_agent.observe.cgroups.Freezer`), in local mode the processes of a
command (`podium_local.processes.stopping.ProcessTree`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class FreezerState(StrEnum):
    """State of the processes as the kernel reports it."""

    FROZEN = "Frozen"
    FREEZING = "Freezing"
    THAWED = "Thawed"
    GONE = "Gone"


class Target(Protocol):
    """Processes that are stopped and continued together."""

    @property
    def name(self) -> str:
        """Return the name under which notes about these processes are stored."""
        ...

    def ask(self, frozen: bool) -> None:
        """Request that the processes stop or continue; ignore those that are gone. Raises OSError."""
        ...

    def frost(self) -> FreezerState:
        """Return the state that the kernel reports. Raises OSError if it does not answer, which proves no end."""
        ...

    def processes(self) -> frozenset[int]:
        """Return the pids of all processes. Raises OSError as `frost` does."""
        ...
