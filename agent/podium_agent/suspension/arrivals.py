"""Processes that came checkpointed from another node: until the driver knows them all, and which GPU each goes to.

Used by the method `cuda-checkpoint`. A map has to name the GPUs that a process was on when it was checkpointed, and no
other: one that was brought back here and is checkpointed again, since another of the trial's was refused, comes from a
GPU of this node.
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

    def maps(self, targets: Targets, onto: Mapping[str, str]) -> Mapping[int, Mapping[str, str]]:
        """For the driver, by pid: from the GPUs that it left, which may be another node's. Their note says which of
        this node's it has instead; `onto` names only GPUs of this node. Raises OSError.
        """
        found: dict[int, Mapping[str, str]] = {}
        for target in targets:
            note = self._parked.whole(target.path.name)
            came = {left: onto.get(here, here) for left, here in note.onto.items()}
            for pid in target.processes():
                found[pid] = onto if pid in note.back else came or onto
        return found

    def note_back(self, targets: Targets, states: States) -> None:
        """Before any is checkpointed (again): who is on this node's GPUs now leaves those. Raises OSError."""
        for target in targets:
            here = target.processes() & states.keys()
            self._parked.brought_back(
                target.path.name, {pid for pid in here if states[pid] is not ProcessState.CHECKPOINTED}
            )
