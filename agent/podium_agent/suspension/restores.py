"""Processes that came checkpointed from another node: until the driver knows them all. Used by the method
`cuda-checkpoint`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from podium_agent.observe.cgroups import Freezer
from podium_agent.suspension.cuda import ProcessState
from podium_agent.suspension.parked_memory import Parked
from podium_agent.suspension.processes import CudaProcesses, Trouble

log = logging.getLogger(__name__)
Targets = tuple[Freezer, ...]
States = Mapping[int, ProcessState]
ARRIVE_PAUSE = 0.02
LONGEST_SECONDS = 60.0  # of being let run and looked for: who has not come by then has died on the way


class Arrivals:
    def __init__(self, processes: CudaProcesses, parked: Parked) -> None:
        self._processes = processes
        self._parked = parked
        self._since: dict[str, float] = {}  # by container, when it was first waited for in this turn
        self._before: dict[str, float] = {}  # and for how many seconds in the turns before

    async def wait(self, targets: Targets, seconds: float) -> States | Trouble:
        """How all stand that hold CUDA, once as many are there as came; what is wrong if that takes longer. Raises as
        `CudaProcesses.of`.
        """
        came = sum(self._parked.whole(target.path.name).processes for target in targets)
        begin = time.monotonic()
        states = await self._processes.of(targets)
        while len(states) < came:
            now = time.monotonic()
            if max(self._waited(target.path.name, begin, now) for target in targets) >= LONGEST_SECONDS:
                log.warning("%d of %d processes that came hold no CUDA: they have ended", came - len(states), came)
                break
            if now >= begin + seconds:
                message = f"the driver knows {len(states)} of the {came} processes that came from another node"
                return Trouble("ProcessesNotReady", message, pending=True)
            await asyncio.sleep(ARRIVE_PAUSE)
            states = await self._processes.of(targets)
        return states

    def pause(self, targets: Targets) -> None:
        """They are frozen, and cannot come meanwhile: however short their turns are, they add up."""
        now = time.monotonic()
        for name in (target.path.name for target in targets if target.path.name in self._since):
            self._before[name] = self._waited(name, now, now)
            del self._since[name]

    def forget(self, targets: Targets) -> None:
        """They are back, or gone."""
        for target in targets:
            self._since.pop(target.path.name, None)
            self._before.pop(target.path.name, None)

    def _waited(self, container: str, begin: float, now: float) -> float:
        return self._before.get(container, 0.0) + now - self._since.setdefault(container, begin)
