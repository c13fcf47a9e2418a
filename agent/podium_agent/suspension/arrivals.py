"""Processes that came checkpointed from another node: until the driver knows them all. Used by the method
`cuda-checkpoint`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from podium_agent.cgroups import Freezer
from podium_agent.suspension.cuda import ProcessState
from podium_agent.suspension.parked import Parked
from podium_agent.suspension.processes import CudaProcesses, Trouble

log = logging.getLogger(__name__)
Targets = tuple[Freezer, ...]
States = Mapping[int, ProcessState]
ARRIVE_PAUSE = 0.02
LONGEST_SECONDS = 60.0  # from the first look on: who has not come by then has died on the way


class Arrivals:
    def __init__(self, processes: CudaProcesses, parked: Parked) -> None:
        self._processes = processes
        self._parked = parked
        self._since: dict[str, float] = {}  # by container, when it was first waited for

    async def wait(self, targets: Targets, seconds: float) -> States | Trouble:
        """How all stand that hold CUDA, once as many are there as came; what is wrong if that takes longer. Raises as
        `CudaProcesses.of`.
        """
        came = sum(self._parked.whole(target.path.name).processes for target in targets)
        begin = time.monotonic()
        states = await self._processes.of(targets)
        while len(states) < came:
            now = time.monotonic()
            if now - min(self._since.setdefault(target.path.name, begin) for target in targets) >= LONGEST_SECONDS:
                log.warning("%d of %d processes that came hold no CUDA: they have ended", came - len(states), came)
                break
            if now >= begin + seconds:
                message = f"the driver knows {len(states)} of the {came} processes that came from another node"
                return Trouble("NotThereYet", message, pending=True)
            await asyncio.sleep(ARRIVE_PAUSE)
            states = await self._processes.of(targets)
        return states

    def forget(self, targets: Targets) -> None:
        """They are back, or gone."""
        for target in targets:
            self._since.pop(target.path.name, None)
