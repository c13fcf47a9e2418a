"""The processes of a trial as a target of suspension methods: SIGSTOP and SIGCONT in place of a cgroup's freezer."""

from __future__ import annotations

from dataclasses import dataclass

from podium_local.processes import process_tree
from podium_suspension.target import FreezerState

ENDED = frozenset("ZX")  # a zombie, dead


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """All processes of an attempt. `root`: pid of the first one."""

    name: str
    root: int

    def ask(self, frozen: bool) -> None:
        """Send SIGSTOP or SIGCONT to all processes."""
        (process_tree.request_stop if frozen else process_tree.resume)(self.root)

    def frost(self) -> FreezerState:
        """Return the state that the kernel reports. Raises OSError if /proc cannot be read."""
        states = self._states().values()
        if not states:
            return FreezerState.GONE
        stopped = [state in process_tree.STOPPED for state in states]
        if all(stopped):
            return FreezerState.FROZEN
        return FreezerState.FREEZING if any(stopped) else FreezerState.THAWED

    def processes(self) -> frozenset[int]:
        """Return the pids of all processes. Raises OSError if /proc cannot be read."""
        return frozenset(self._states())

    def _states(self) -> dict[int, str]:
        there = process_tree.all_processes()
        mine = {pid: there[pid].state for pid in process_tree.tree(self.root, there)}
        return {pid: state for pid, state in mine.items() if state not in ENDED}
