"""Memory of each process on each GPU, read from NVML to verify that a suspension released it.

The method `cuda-checkpoint` uses it. The reads block, so they are made through `driver_calls`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pynvml

from podium_agent.suspension.base import RESTORE_SCRATCH


class GPUMemoryUnknownError(Exception):
    """NVML does not report the memory; the message contains its answer."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Memory in bytes: `held` by process (host pid) and GPU (UUID), `free` and `usable` by GPU.

    `usable` excludes the memory that the driver reserves.
    """

    held: Mapping[int, Mapping[str, int]]
    free: Mapping[str, int]
    usable: Mapping[str, int] = field(default_factory=dict)

    def held_by(self, pids: frozenset[int]) -> Mapping[str, int]:
        """Return the bytes that these processes hold together, by GPU."""
        total: dict[str, int] = {}
        for pid in pids & self.held.keys():
            for uuid, count in self.held[pid].items():
                total[uuid] = total.get(uuid, 0) + count
        return total


def read_memory() -> GpuMemory:
    """Read the memory of all GPUs. Raises GPUMemoryUnknownError."""
    held: dict[int, dict[str, int]] = {}
    free: dict[str, int] = {}
    usable: dict[str, int] = {}
    with _nvml():
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                _read_gpu(index, held, free, usable)
            except pynvml.NVMLError_GpuIsLost:
                continue  # nothing runs on this GPU any more; NVML still reports the others
    return GpuMemory(held, free, usable)


def _read_gpu(index: int, held: dict[int, dict[str, int]], free: dict[str, int], usable: dict[str, int]) -> None:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    free[uuid], usable[uuid] = int(memory.free), int(memory.total) - int(memory.reserved)
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
        if process.usedGpuMemory is None:
            raise GPUMemoryUnknownError(f"NVML does not report the memory of process {process.pid}")
        held.setdefault(int(process.pid), {})[uuid] = int(process.usedGpuMemory)


@contextmanager
def _nvml() -> Iterator[None]:
    try:
        pynvml.nvmlInit()
        try:
            yield
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise GPUMemoryUnknownError(f"NVML: {error}") from error


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def restore_impossible(memory: GpuMemory, pids: frozenset[int]) -> str | None:
    """Return a message that names a GPU so full of this trial that a restore could never succeed.

    None if none is.
    """
    for uuid, count in sorted(memory.held_by(pids).items()):
        usable = memory.usable[uuid]
        if count + RESTORE_SCRATCH > usable:
            return (
                f"the trial holds {count} of the {usable} bytes of GPU {uuid}, and a restore needs {RESTORE_SCRATCH} "
                "more; reduce its memory"
            )
    return None


def larger_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return the larger count for each key; a missing key counts as 0."""
    return {uuid: max(one.get(uuid, 0), other.get(uuid, 0)) for uuid in sorted(one.keys() | other.keys())}
