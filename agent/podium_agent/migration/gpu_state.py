"""GPU state of a container during its checkpoint: the driver has moved it to host memory (`cuda-checkpoint`).

Such a container uses no GPU, so it can be migrated. The order follows the README of NVIDIA's cuda-checkpoint: toggle,
CRIU's dump, CRIU's restore, toggle. It needs no CRIU plugin. On the new node the method `cuda-checkpoint` restores the
trial by a GPU map (`suspension.gpu_state_notes`), which needs driver 580 or newer.
"""

from __future__ import annotations

import time
from types import TracebackType

from podium_agent.migration.errors import MigrationError
from podium_agent.observe.cgroups import Freezer
from podium_suspension.cuda import ProcessState
from podium_suspension.driver_calls import DriverTimeoutError
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.processes import CudaProcesses


class CheckpointedGpuState:
    """The GPU state of one container.

    Within this context the agent regards the container as suspended although it is thawed, for `seconds` at most.
    """

    def __init__(self, processes: CudaProcesses, notes: GpuStateNotes, container: str, seconds: float) -> None:
        self._processes, self._notes = processes, notes
        self._container, self._seconds = container, seconds

    def __enter__(self) -> None:
        self._notes.set_migrating_until(self._container, time.monotonic() + self._seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._notes.set_migrating_until(self._container, 0.0)

    async def confirm(self, freezer: Freezer) -> int:
        """Return the number of CUDA processes; raise MigrationError unless all are checkpointed.

        The container must not be frozen, because the driver needs a running thread in each process.
        """
        try:
            states = await self._processes.states_of((freezer,))
        except DriverTimeoutError as error:
            raise MigrationError(
                "DriverUnresponsive", f"the driver does not report the state of the processes: {error}"
            ) from error
        wrong = [f"process {pid} {one.name}" for pid, one in states.items() if one is not ProcessState.CHECKPOINTED]
        if wrong or not states:
            reported = wrong[0] if wrong else "no process with a CUDA context"
            message = (
                f"the driver reports {reported}, but all must be CHECKPOINTED; suspend the trial by cuda-checkpoint"
            )
            raise MigrationError("GPUAttached", message)
        if self._notes.read(self._container).is_split:
            message = "only some processes could be restored on other GPUs; resume the trial first"
            raise MigrationError("SplitAcrossGPUs", message)
        return len(states)
