"""Two reasons why `cuda-checkpoint` cannot restore a process yet: it is not registered, or the driver refuses it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from podium_suspension.cuda import ProcessState
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.processes import CudaProcesses, StepError
from podium_suspension.target import Target

log = logging.getLogger(__name__)
Targets = tuple[Target, ...]
States = Mapping[int, ProcessState]
POLL_SECONDS = 0.02
LONGEST_SECONDS = 60.0  # of running without registering: the process has ended during the migration


class MigratedProcesses:
    """Waits until the driver knows all processes of a container that came from another node."""

    def __init__(self, processes: CudaProcesses, notes: GpuStateNotes) -> None:
        self._processes = processes
        self._notes = notes
        self._since: dict[str, float] = {}  # by container, when the wait in this time slice began
        self._before: dict[str, float] = {}  # by container, seconds of waiting in earlier time slices

    async def wait(self, targets: Targets, seconds: float) -> States | StepError:
        """Wait until the driver knows as many processes as were migrated, and return their states.

        Returns a StepError if that takes longer than `seconds`. Raises the errors of `CudaProcesses.states_of`.
        """
        expected = sum(self._notes.read(target.name).processes for target in targets)
        begin = time.monotonic()
        states = await self._processes.states_of(targets)
        while len(states) < expected:
            now = time.monotonic()
            if max(self._waited(target.name, begin, now) for target in targets) >= LONGEST_SECONDS:
                ended = expected - len(states)
                log.warning("%d of %d migrated processes have no CUDA context: they have ended", ended, expected)
                break
            if now >= begin + seconds:
                message = f"the driver knows {len(states)} of the {expected} processes that came from another node"
                return StepError("ProcessesNotReady", message, pending=True)
            await asyncio.sleep(POLL_SECONDS)
            states = await self._processes.states_of(targets)
        return states

    def pause(self, targets: Targets) -> None:
        """Stop the clock while the containers are frozen; the times of several short time slices add up."""
        now = time.monotonic()
        for name in (target.name for target in targets if target.name in self._since):
            self._before[name] = self._waited(name, now, now)
            del self._since[name]

    def forget(self, targets: Targets) -> None:
        """Drop the containers, which are restored or gone."""
        for target in targets:
            self._since.pop(target.name, None)
            self._before.pop(target.name, None)

    def _waited(self, container: str, begin: float, now: float) -> float:
        return self._before.get(container, 0.0) + now - self._since.setdefault(container, begin)


LOST_SECONDS = 60.0  # of attempts, after which a process is lost
LONGEST_GAP = 15.0  # between two refusals that counts: the trial may have waited for hours in between


class RestoreRefusals:
    """Counts refused restores by container, to decide when a process is lost.

    After a restore without enough memory, driver 580.159 still reports the process as CHECKPOINTED and answers every
    further restore with an error (benchmarks/results/bench-gpu.md). The agent that tried first sees OUT_OF_MEMORY and
    kills the process; an agent that started later sees only refusals. The counts are not stored: a new agent starts
    from zero. `clock` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[
            str, tuple[float, float, int]
        ] = {}  # time of the last refusal, seconds of attempts, number of refusals

    def lost(self, containers: Iterable[str]) -> str:
        """Count a refusal of a trial with these containers.

        Returns a message if the trial is lost; empty if Podium shall try again.
        """
        now = self._clock()
        for container in containers:
            last, tried, count = self._seen.get(container, (now, 0.0, 0))
            tried += min(LONGEST_GAP, now - last)
            self._seen[container] = now, tried, count + 1
            if tried >= LOST_SECONDS:
                return (
                    f"the driver refused {count + 1} times although the memory is free; "
                    "the trial continues from its last checkpoint"
                )
        return ""

    def forget(self, containers: Iterable[str]) -> None:
        """Drop the containers, which are restored or gone."""
        for container in containers:
            self._seen.pop(container, None)
