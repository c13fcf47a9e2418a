"""Memory of each process on each GPU, read from NVML to verify that a suspension released it.

The method `cuda-checkpoint` uses it. The reads block, so they are made through `driver_calls`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pynvml

from podium_suspension.base import RESTORE_SCRATCH

UNUSABLE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)  # nothing runs on such a GPU


class GPUMemoryUnknownError(Exception):
    """NVML does not report the memory; the message contains its answer."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Memory in bytes: `held` by process (host pid) and GPU (UUID), `free` and `usable` by GPU.

    `usable` excludes the memory that the driver reserves. A GPU that is lost has no memory: it is in none of them.
    `unknown`: why the driver does not report the memory of a GPU, or its processes; the other GPUs are known. A GPU
    that does not even report its UUID is named by its index there.
    """

    held: Mapping[int, Mapping[str, int]]
    free: Mapping[str, int]
    usable: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

    def held_by(self, pids: frozenset[int]) -> Mapping[str, int]:
        """Return the bytes that these processes hold together, by GPU."""
        total: dict[str, int] = {}
        for pid in pids & self.held.keys():
            for uuid, count in self.held[pid].items():
                total[uuid] = total.get(uuid, 0) + count
        return total

    def check_gpus(self, uuids: Iterable[str]) -> None:
        """Raise GPUMemoryUnknownError if the memory of one of these GPUs is unknown."""
        unnamed = next((why for name, why in self.unknown.items() if name.isdecimal()), "")
        for uuid in sorted(uuids):
            why = self.unknown.get(uuid) or ("" if uuid in self.free else unnamed)
            if why:
                raise GPUMemoryUnknownError(f"GPU {uuid}: {why}")

    def check_processes(self, pids: Iterable[int]) -> None:
        """Raise GPUMemoryUnknownError if one of these CUDA processes may be on a GPU whose memory is unknown.

        A CUDA process holds memory, so one without memory may be on a GPU that does not report its processes.
        """
        for pid in sorted(pids):
            if pid in self.held:
                self.check_gpus(self.held[pid])
            elif self.unknown:
                uuid, why = min(self.unknown.items())
                raise GPUMemoryUnknownError(f"process {pid} may be on GPU {uuid}: {why}")


def read_memory() -> GpuMemory:
    """Read the memory of all GPUs. Raises GPUMemoryUnknownError if the driver answers for none."""
    reading = _Reading()
    with _nvml():
        for index in range(pynvml.nvmlDeviceGetCount()):
            reading.add(index)
    return GpuMemory(reading.held, reading.free, reading.usable, reading.unknown)


class _Reading:
    """Memory of the GPUs that were read so far."""

    def __init__(self) -> None:
        self.held: dict[int, dict[str, int]] = {}
        self.free: dict[str, int] = {}
        self.usable: dict[str, int] = {}
        self.unknown: dict[str, str] = {}

    def add(self, index: int) -> None:
        """Read one GPU. A GPU that is lost runs nothing; any other error makes the memory of this GPU unknown."""
        name = str(index)
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name = _text(pynvml.nvmlDeviceGetUUID(handle))
            self._add_processes(name, handle)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            self.free[name], self.usable[name] = int(memory.free), int(memory.total) - int(memory.reserved)
        except pynvml.NVMLError as error:
            if error.value not in UNUSABLE:
                self.unknown[name] = f"NVML: {error}"
                return
            for held in self.held.values():
                held.pop(name, None)

    def _add_processes(self, uuid: str, handle: Any) -> None:
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.usedGpuMemory is None:
                self.unknown[uuid] = f"NVML does not report the memory of process {process.pid}"
            else:
                self.held.setdefault(int(process.pid), {})[uuid] = int(process.usedGpuMemory)


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
