"""The checkpoint calls of NVIDIA's driver (570 and newer) on another process, through its own `cuda-bindings`.

Used by the method `cuda-checkpoint`. Every call blocks, some for ever: `calls` makes them in threads that can be given
up (the bindings let go of Python's lock meanwhile). Source: NVIDIA, CUDA Driver API 13.x, section "CUDA Checkpointing".
The library is opened and `cuInit` called once for the life of the agent: a process per call costs seconds
(shared/research/checkpoint.md, 1.5).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from cuda.bindings import driver as bindings

OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
NOT_READY = 600  # CUDA_ERROR_NOT_READY: the lock's time is over
CUSTOM_STORAGE = (b"cuCheckpointOperationComplete", 13040)  # a function that came with it, and CUDA's version then


class ProcessState(IntEnum):
    """CUprocessState."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


class CudaMissingError(Exception):
    """There is no driver here that could be asked; the sentence says what is missing."""


class CudaError(Exception):
    """The driver answered a call about a process with an error: its number (CUresult) and name."""

    def __init__(self, call: str, pid: int, code: int, name: str) -> None:
        super().__init__(f"{call} of process {pid}: {name} ({code})")
        self.code = code


class CudaDriver:
    """Raises CudaMissingError if the library, one of its calls or a GPU is missing.

    `library` is loaded first: the bindings take the `libcuda.so.1` that a process has already, the first if several.
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
            bindings.cuCheckpointProcessGetState(0)  # no process has this number: only whether the call is there
        except RuntimeError as error:
            raise CudaMissingError(f"{error}: libcuda is older than driver 570") from error

    @property
    def has_custom_storage(self) -> bool:
        """Whether the memory of a process could be copied by whoever asks, to where he wants (CUDA 13.4)."""
        code, _, _ = bindings.cuGetProcAddress(*CUSTOM_STORAGE, 0)
        return not code

    def holds_cuda(self, pid: int) -> bool:
        """Whether the process has a CUDA context: only then has it a thread that restores."""
        code, _ = bindings.cuCheckpointProcessGetRestoreThreadId(pid)
        return not code

    def state(self, pid: int) -> ProcessState | None:
        """None: there is no such process, or it holds no CUDA."""
        code, state = bindings.cuCheckpointProcessGetState(pid)
        return None if code else ProcessState(int(state))

    def lock(self, pid: int, seconds: float) -> None:
        """RUNNING to LOCKED once the work that was submitted is done. CudaError NOT_READY: not within the time."""
        arguments = bindings.CUcheckpointLockArgs()
        arguments.timeoutMs = max(1, round(seconds * 1000))  # 0 would wait for ever
        _do(bindings.cuCheckpointProcessLock, pid, arguments)

    def checkpoint(self, pid: int) -> None:
        """LOCKED to CHECKPOINTED: what it holds on GPUs is moved to host memory of the process."""
        _do(bindings.cuCheckpointProcessCheckpoint, pid, None)

    def restore(self, pid: int, onto: Mapping[str, str] | None = None) -> None:
        """CHECKPOINTED to LOCKED. Without the memory there (and RESTORE_SCRATCH) it is lost for good, as FAILED or, by
        driver 580.159, as CHECKPOINTED that no call moves any more.

        `onto`: for each GPU (uuid) that the process was on the one, of the same product, that it comes back on. None,
        or all to themselves: back to where it was. Any other needs driver 580 or newer.
        """
        if not onto or all(old == new for old, new in onto.items()):
            _do(bindings.cuCheckpointProcessRestore, pid, None)
            return
        arguments = bindings.CUcheckpointRestoreArgs()
        arguments.gpuPairs = [_pair(old, new) for old, new in onto.items()]
        arguments.gpuPairsCount = len(onto)
        _do(bindings.cuCheckpointProcessRestore, pid, arguments)

    def unlock(self, pid: int) -> None:
        """LOCKED to RUNNING."""
        _do(bindings.cuCheckpointProcessUnlock, pid, None)


def _do(call: Callable[[int, Any], tuple[Any, ...]], pid: int, arguments: Any) -> None:
    (code,) = call(pid, arguments)
    if code:
        name = call.__name__.removeprefix("cuCheckpointProcess").lower()
        raise CudaError(name, pid, int(code), _name(code))


def _name(code: Any) -> str:
    unknown, name = bindings.cuGetErrorName(code)
    return "unknown error" if unknown or name is None else str(name.decode())


def _pair(old: str, new: str) -> Any:
    """Of two uuids ("GPU-..."). A CUuuid only points to its bytes; the pair has a copy of its own."""
    pair = bindings.CUcheckpointGpuPair()
    for field, text in (("oldUuid", old), ("newUuid", new)):
        sixteen = (ctypes.c_char * 16).from_buffer_copy(bytes.fromhex(text.removeprefix("GPU-").replace("-", "")))
        setattr(pair, field, bindings.CUuuid(ctypes.addressof(sixteen)))
    return pair
