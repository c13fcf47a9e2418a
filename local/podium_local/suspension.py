"""Suspension of trials on this machine: the methods of a cluster's agent, on processes instead of containers.

`freeze` is SIGSTOP and SIGCONT here. Where `cuda_support` allows it, `cuda-checkpoint` moves GPU memory before that. A
call blocks until all is done, and the runner does nothing else meanwhile: milliseconds for `freeze`, the time of a copy
for GPU memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from podium_core.schema.checkpointing import CUDA_CHECKPOINT
from podium_core.schema.job import JobSpec
from podium_local.cuda_support import CudaSupport
from podium_local.processes.stopping import ProcessTree
from podium_suspension.base import SuspensionOutcome, SuspensionState
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.methods import SuspensionMethods

STOP_SECONDS = 5.0  # for all processes of a trial to stop; one in an uninterruptible call takes longer
LOCK_SECONDS, COPY_SECONDS = 10.0, 300.0  # of the driver: for submitted work, and for each move of memory


class Suspender:
    """The suspension methods of one run. `notes`: folder for notes about moved memory."""

    def __init__(self, spec: JobSpec, cuda: CudaSupport, notes: Path) -> None:
        self._wanted = tuple(spec.suspension.methods)
        self._gpus = spec.gpus.per_trial
        self._loop = asyncio.Runner()
        freeze = Freeze(STOP_SECONDS)
        self._notes = GpuStateNotes(notes)
        self._notes.remove_stale(frozenset())  # no process of an earlier run is left
        self._methods = SuspensionMethods(freeze, notes=self._notes)
        if cuda.driver is not None:
            from podium_suspension.cuda_checkpoint import CudaCheckpoint
            from podium_suspension.processes import CudaProcesses

            processes = CudaProcesses(cuda.driver, LOCK_SECONDS, COPY_SECONDS)
            self._methods.adopt(CudaCheckpoint(processes, freeze, self._notes), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the methods that this machine has."""
        return self._methods.names

    def choose(self, failed: Collection[str]) -> str:
        """Return the method for a trial: failed ones come last, and `freeze` stands for missing ones."""
        return self._methods.choose(self._wanted, self._gpus, failed) or Freeze.name

    def suspend(self, method: str, trial: ProcessTree) -> SuspensionOutcome:
        """Suspend all processes, or let all of them run again."""
        return self._run(self._methods.suspend(method, (trial,)))

    def resume(self, trial: ProcessTree) -> SuspensionOutcome:
        """Resume all processes, whichever method suspended them."""
        return self._run(self._methods.resume((trial,)))

    def is_partly_suspended(self, trial: ProcessTree) -> bool:
        """Return whether a failed act left the trial between two states."""
        return self._methods.suspension_state((trial,)) is SuspensionState.PARTLY_SUSPENDED

    def is_checkpointed(self, trial: ProcessTree) -> bool:
        """Return whether the trial's GPU memory is in host memory."""
        return self._methods.is_checkpointed((trial,))

    def moves(self, method: str) -> bool:
        """Return whether this method moves GPU memory."""
        return method == CUDA_CHECKPOINT

    def forget(self, attempt: str) -> None:
        """Note that nothing of this attempt runs any more."""
        with suppress(OSError):
            self._notes.remove(attempt)

    def close(self) -> None:
        """Release what the calls need."""
        self._loop.close()

    def _run(self, act: Coroutine[Any, Any, SuspensionOutcome]) -> SuspensionOutcome:
        return self._loop.run(act)
