"""Admission by GPU memory: asks the memory ledger, for one trial at a time, whether it may go onto its GPUs now.

The executor asks at the gate and before a restore. A lock covers reading the driver, judging and promising, so two
concurrent trials are never promised the same bytes. Of two waiting trials neither counts against the other, so they
cannot block one another. Only a flag on the pod record is kept; all else is read each time, so a restarted agent has
nothing to restore.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from podium_agent.observe.pod_records import PodRecord
from podium_agent.schedule.memory_ledger import Footprint, Shortfall, shortfall, shortfall_alone
from podium_core.schema.gpunode import SlotState
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.driver_calls import DriverTimeoutError, NoThreadError, call_with_timeout
from podium_suspension.gpu_memory import GpuMemory, GPUMemoryUnknownError, read_memory
from podium_suspension.methods import SuspensionMethods

log = logging.getLogger(__name__)
Judge = Callable[[Footprint, Iterable[Footprint], Mapping[str, int]], Shortfall | None]
READ_SECONDS = 5.0
STOPPED = (SlotState.SUSPENDED, SlotState.RESUMING)
AT_WORK = (SlotState.STARTING, SlotState.RUNNING, SlotState.SUSPENDING)


class MemoryAdmission:
    """Admission by GPU memory; `records`: all pod records of this node.

    `memory` is read in a thread, because a driver may hang.
    """

    def __init__(
        self,
        records: Callable[[], Iterable[PodRecord]],
        methods: SuspensionMethods,
        memory: Callable[[], GpuMemory] = read_memory,
    ) -> None:
        self._records = records
        self._methods = methods
        self._memory = memory
        self._lock = asyncio.Lock()
        self._reading = False  # also after a read was given up: its thread remains until the driver answers

    def concerns(self, record: PodRecord) -> bool:
        """Return whether the trial's memory must be free before it may run.

        That holds if its next suspension will move the memory, or the last one moved it.
        """
        return self._moved(record) or bool(self._methods.held_bytes(record.processes.freezers))

    async def admit(self, record: PodRecord) -> str:
        """Promise the memory to the trial and return an empty text, or return why it must wait."""
        async with self._lock:
            memory_shortage = await self._judge(record, shortfall)
            record.memory.admitted = not memory_shortage
        return memory_shortage

    async def could(self, record: PodRecord) -> str:
        """Return the same as `admit` under the assumption that all movable memory were moved; promise nothing."""
        async with self._lock:
            return await self._judge(record, shortfall_alone)

    async def _judge(self, record: PodRecord, judge: Judge) -> str:
        try:
            memory = await self._read()
            memory.check_gpus(record.gpus)
            claim = self._footprint(record, memory)
            if claim.here and not claim.off_gpu:
                return ""  # frozen with its memory on the GPU
            others = [self._footprint(one, memory) for one in self._records() if one is not record]
        except GPUMemoryUnknownError as error:
            if not self._methods.held_bytes(record.processes.freezers):
                log.warning("%s is admitted without a check of the GPU memory: %s", record.pod.name, error)
                return ""  # a driver that never reports memory must not block the trial: it cannot move memory either
            return f"the free GPU memory is unknown: {error}"
        except (DriverTimeoutError, OSError) as error:
            return f"the free GPU memory is unknown: {error}"
        except Exception as error:  # any error: otherwise the record would show admission as under way permanently
            log.exception("%s: its GPU memory could not be judged", record.pod.name)
            return f"the free GPU memory could not be determined: {error!r}"
        memory_shortage = judge(claim, others, memory.free)
        return "" if memory_shortage is None else str(memory_shortage)

    async def _read(self) -> GpuMemory:
        """Read the memory of the GPUs.

        Raises as `read_memory` does, DriverTimeoutError and NoThreadError. A driver that hangs is not asked again until
        it answers. Otherwise each check would leave one more thread behind, and later checks would queue behind it.
        """
        if self._reading:
            raise DriverTimeoutError("the driver has not answered yet")
        self._reading = True
        try:
            return await call_with_timeout(READ_SECONDS, self._read_in_thread)
        except NoThreadError:
            self._reading = False
            raise

    def _read_in_thread(self) -> GpuMemory:
        try:
            return self._memory()
        finally:
            self._reading = False

    def _footprint(self, record: PodRecord, memory: GpuMemory) -> Footprint:
        """Return the footprint of one pod; raises OSError if the kernel does not report its processes."""
        freezers = record.processes.freezers
        off_gpu = self._methods.held_bytes(freezers)
        held = memory.held_by(frozenset(pid for freezer in freezers for pid in freezer.processes()))
        moved = self._moved(record)
        # a trial stopped before it took memory asks again; one stopped by `freeze` continues without asking
        frozen = record.state in STOPPED and not off_gpu and (bool(held) or not moved)
        return Footprint(
            record.pod.name,
            record.gpus,
            record.pod.requests.gpu_memory,
            held,
            off_gpu,
            here=not record.end.ended and (record.memory.admitted or record.state in AT_WORK or frozen),
            leaves=moved and not frozen and CudaCheckpoint.name not in record.suspension.failed,
        )

    def _moved(self, record: PodRecord) -> bool:
        """Return whether the next suspension is to move the trial's memory."""
        allowed, failed = record.pod.settings.methods, record.suspension.failed
        return self._methods.choose(allowed, len(record.gpus), failed) == CudaCheckpoint.name
