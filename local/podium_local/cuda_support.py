"""Whether `cuda-checkpoint` can move the GPU memory of trials on this machine, and why not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from podium_core.placement.needs import moves_memory
from podium_core.schema.checkpointing import CUDA_CHECKPOINT
from podium_core.schema.job import JobSpec
from podium_suspension.driver_calls import DriverTimeoutError, call_with_timeout

if TYPE_CHECKING:
    from podium_suspension.cuda import CudaDriver

PROC = Path("/proc")
OPEN_SECONDS = 30.0  # cuInit on a machine with many GPUs takes seconds
INSTALL = "install kube-podium[cuda] for it"


@dataclass(frozen=True, slots=True)
class CudaSupport:
    """The driver, if the method can be used for the trials of a job.

    `reason`: why it cannot; empty if the job does not ask for it. `moves_memory`: a suspended trial has always left its
    GPU with its memory, so that more trials have slots than fit.
    """

    driver: CudaDriver | None = None
    reason: str = ""
    moves_memory: bool = False


NO_CUDA = CudaSupport()


def find_cuda(spec: JobSpec) -> CudaSupport:
    """Query the driver, if the job names the method; blocking, for at most `OPEN_SECONDS`."""
    if CUDA_CHECKPOINT not in spec.suspension.methods or spec.gpus.per_trial == 0:
        return NO_CUDA
    try:
        return asyncio.run(call_with_timeout(OPEN_SECONDS, lambda: _query(spec)))
    except DriverTimeoutError:
        return CudaSupport(reason=f"the driver does not answer within {OPEN_SECONDS:g} s")


def _query(spec: JobSpec) -> CudaSupport:
    try:
        from podium_suspension.capability import cuda_checkpoint_unsupported, multi_gpu_unsupported, read_facts
        from podium_suspension.cuda import CudaDriver, CudaMissingError
    except ImportError as error:
        return CudaSupport(reason=f"{error}; {INSTALL}")
    facts = read_facts(PROC)
    reason = cuda_checkpoint_unsupported(facts)
    if reason is None and spec.gpus.per_trial > 1:
        reason = multi_gpu_unsupported(facts.driver)
    if reason is not None:
        return CudaSupport(reason=reason)
    try:
        return CudaSupport(CudaDriver(), moves_memory=moves_memory(spec.suspension.methods))
    except CudaMissingError as error:
        return CudaSupport(reason=str(error))
