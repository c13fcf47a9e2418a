"""Checkpoint calls of NVIDIA's driver (570 and newer) on another process, through NVIDIA's `cuda-bindings`.

The method `cuda-checkpoint` uses it. Every call blocks, and some may never return: `driver_calls` makes them in threads
with a timeout (the bindings release Python's global lock). The library is opened and `cuInit` called once for the life
of the agent, because a new process for each call would cost seconds.
Source: NVIDIA, CUDA Driver API 13.x, section "CUDA Checkpointing".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from cuda.bindings import driver as bindings

OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
NOT_READY = 600  # CUDA_ERROR_NOT_READY: the lock timed out
CUSTOM_STORAGE = (b"cuCheckpointOperationComplete", 13040)  # a function added with this feature, and its CUDA version


class ProcessState(IntEnum):
    """State of a process as the driver reports it (CUprocessState)."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


class CudaMissingError(Exception):
    """No usable driver on this node; the message names what is missing."""


class CudaError(Exception):
    """Error of a driver call on a process, with its number (CUresult) and name."""

    def __init__(self, call: str, pid: int, code: int, name: str) -> None:
        super().__init__(f"{call} of process {pid}: {name} ({code})")
        self.code = code


class CudaDriver:
    """The driver's checkpoint functions.

    The constructor raises CudaMissingError if the library, one of its functions or a GPU is missing. It loads `library`
    first, because the bindings use the first `libcuda.so.1` that the process has loaded.
    """

    def __init__(self, library: str = "libcuda.so.1") -> None:
        try:
            ctypes.CDLL(library)
            (code,) = bindings.cuInit(0)
        except (OSError, RuntimeError) as error:
            raise CudaMissingError(f"libcuda cannot be loaded: {error}") from error
        if code:
            raise CudaMissingError(f"cuInit: {_name(code)} ({int(code)})")
        try:
            bindings.cuCheckpointProcessGetState(0)  # no process has this number: checks only that the function exists
        except RuntimeError as error:
            raise CudaMissingError(f"{error}: libcuda is older than driver 570") from error

    @property
    def has_custom_storage(self) -> bool:
        """Return whether the caller could copy the memory of a process to storage of its own (CUDA 13.4)."""
        code, _, _ = bindings.cuGetProcAddress(*CUSTOM_STORAGE, 0)
        return not code

    def holds_cuda(self, pid: int) -> bool:
        """Return whether the process has a CUDA context, which includes a restore thread."""
        code, _ = bindings.cuCheckpointProcessGetRestoreThreadId(pid)
        return not code

    def state(self, pid: int) -> ProcessState | None:
        """Return the state of a process; None if it does not exist or has no CUDA context."""
        code, state = bindings.cuCheckpointProcessGetState(pid)
        return None if code else ProcessState(int(state))

    def lock(self, pid: int, seconds: float) -> None:
        """Change RUNNING to LOCKED once the submitted work is done.

        Raises CudaError with code NOT_READY if that takes longer than `seconds`.
        """
        arguments = bindings.CUcheckpointLockArgs()
        arguments.timeoutMs = max(1, round(seconds * 1000))  # 0 would wait without a limit
        _checked_call(bindings.cuCheckpointProcessLock, pid, arguments)

    def checkpoint(self, pid: int) -> None:
        """Change LOCKED to CHECKPOINTED: move the process's GPU memory to its host memory."""
        _checked_call(bindings.cuCheckpointProcessCheckpoint, pid, None)

    def restore(self, pid: int, gpu_map: Mapping[str, str] | None = None) -> None:
        """Change CHECKPOINTED to LOCKED: move the process's memory back to GPUs.

        Without enough free GPU memory (including RESTORE_SCRATCH) the driver loses the process: its state becomes
        FAILED or, with driver 580.159, remains CHECKPOINTED permanently.
        `gpu_map` maps the UUID of each GPU that the process used to the GPU of the same product that replaces it. With
        None or an identity map the process returns to its own GPUs. Any other map needs driver 580 or newer.
        """
        if not gpu_map or all(old == new for old, new in gpu_map.items()):
            _checked_call(bindings.cuCheckpointProcessRestore, pid, None)
            return
        arguments = bindings.CUcheckpointRestoreArgs()
        arguments.gpuPairs = [_pair(old, new) for old, new in gpu_map.items()]
        arguments.gpuPairsCount = len(gpu_map)
        _checked_call(bindings.cuCheckpointProcessRestore, pid, arguments)

    def unlock(self, pid: int) -> None:
        """Change LOCKED to RUNNING."""
        _checked_call(bindings.cuCheckpointProcessUnlock, pid, None)


def _checked_call(call: Callable[[int, Any], tuple[Any, ...]], pid: int, arguments: Any) -> None:
    (code,) = call(pid, arguments)
    if code:
        name = call.__name__.removeprefix("cuCheckpointProcess").lower()
        raise CudaError(name, pid, int(code), _name(code))


def _name(code: Any) -> str:
    unknown, name = bindings.cuGetErrorName(code)
    return "unknown error" if unknown or name is None else str(name.decode())


def _pair(old: str, new: str) -> Any:
    """Return the driver's pair of two UUIDs ("GPU-...").

    The pair copies the bytes to which a CUuuid points.
    """
    pair = bindings.CUcheckpointGpuPair()
    for field, text in (("oldUuid", old), ("newUuid", new)):
        sixteen = (ctypes.c_char * 16).from_buffer_copy(bytes.fromhex(text.removeprefix("GPU-").replace("-", "")))
        setattr(pair, field, bindings.CUuuid(ctypes.addressof(sixteen)))
    return pair
