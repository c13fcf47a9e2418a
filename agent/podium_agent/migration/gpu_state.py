"""A trial that the driver has moved off its GPUs (`cuda-checkpoint`) holds nothing of them, so it can be carried away.

Used by `move`. The order is that of NVIDIA's cuda-checkpoint README: toggle, CRIU's dump, CRIU's restore, toggle; no
plugin of CRIU has a part in it. On the other node the method `cuda-checkpoint` brings the trial back, by a map of GPUs
(`suspension.parked`), which drivers take from 580 on.
"""

from __future__ import annotations

import time
from types import TracebackType

from podium_agent.migration.refusal import MoveError
from podium_agent.observe.cgroups import Freezer
from podium_agent.suspension.cuda import ProcessState
from podium_agent.suspension.driver_calls import GivenUpError
from podium_agent.suspension.parked_memory import Parked
from podium_agent.suspension.processes import CudaProcesses


class OffGpus:
    """One such container. Entered, its agent takes it for suspended though it is thawed, for `seconds` at most."""

    def __init__(self, processes: CudaProcesses, parked: Parked, container: str, seconds: float) -> None:
        self._processes, self._parked = processes, parked
        self._container, self._seconds = container, seconds

    def __enter__(self) -> None:
        self._parked.leave(self._container, time.time() + self._seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parked.leave(self._container, 0.0)

    async def confirm(self, freezer: Freezer) -> int:
        """How many processes of it hold CUDA; MoveError unless the driver calls all of them checkpointed.

        Not to be asked of a frozen container: the driver needs a live thread in each process.
        """
        try:
            states = await self._processes.of((freezer,))
        except GivenUpError as error:
            raise MoveError(
                "DriverUnresponsive", f"the driver does not say how its processes stand: {error}"
            ) from error
        wrong = [f"process {pid} {one.name}" for pid, one in states.items() if one is not ProcessState.CHECKPOINTED]
        if wrong or not states:
            found = wrong[0] if wrong else "none of its processes one that holds CUDA"
            message = (
                f"the driver calls {found}: only what it has checkpointed can leave; suspend it by cuda-checkpoint"
            )
            raise MoveError("GPUAttached", message)
        if self._parked.whole(self._container).apart:
            message = "only some of its processes could be brought back onto other GPUs; let it work again first"
            raise MoveError("SplitAcrossGPUs", message)
        return len(states)
