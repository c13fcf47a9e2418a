"""The checkpoint calls of NVIDIA's driver (570 and newer) on another process, through ctypes on libcuda.

Used by the method `cuda-checkpoint`. Every call blocks, some for ever: `calls` makes them in threads that can be given
up. Source: NVIDIA, CUDA Driver API 13.x, section "CUDA Checkpointing". The library is opened and `cuInit` called once
for the life of the agent: a process per call costs seconds (shared/research/checkpoint.md, 1.5).
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Mapping
from enum import IntEnum

_RESERVED_BYTES = 64  # each call's arguments: of fixed size, zeroed but for what is used
NOT_READY = 600  # CUDA_ERROR_NOT_READY: the lock's time is over
_CALLS = ("GetState", "GetRestoreThreadId", "Lock", "Checkpoint", "Restore", "Unlock")


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


class _Pair(ctypes.Structure):
    """CUcheckpointGpuPair."""

    _fields_ = (("old", ctypes.c_ubyte * 16), ("new", ctypes.c_ubyte * 16))


class _RestoreArguments(ctypes.Structure):
    """CUcheckpointRestoreArgs; with room for what newer drivers read beyond it."""

    _fields_ = (("pairs", ctypes.c_void_p), ("count", ctypes.c_uint), ("reserved", ctypes.c_ubyte * 60))


def _bytes(gpu: str) -> ctypes.Array[ctypes.c_ubyte]:
    return (ctypes.c_ubyte * 16)(*uuid.UUID(gpu.removeprefix("GPU-")).bytes)


class CudaDriver:
    """Raises CudaMissingError if the library, one of its calls or a GPU is missing."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise CudaMissingError(f"libcuda cannot be loaded: {error}") from error
        missing = [name for name in _CALLS if not hasattr(self._library, f"cuCheckpointProcess{name}")]
        if missing:
            raise CudaMissingError(f"libcuda has no cuCheckpointProcess{missing[0]}: it is older than driver 570")
        code = self._library.cuInit(0)
        if code:
            raise CudaMissingError(f"cuInit: {self._name(code)} ({code})")

    def holds_cuda(self, pid: int) -> bool:
        """Whether the process has a CUDA context: only then has it a thread that restores."""
        return self._ask("GetRestoreThreadId", pid, ctypes.c_int()) is not None

    def state(self, pid: int) -> ProcessState | None:
        """None: there is no such process, or it holds no CUDA."""
        state = self._ask("GetState", pid, ctypes.c_int())
        return None if state is None else ProcessState(state)

    def lock(self, pid: int, seconds: float) -> None:
        """RUNNING to LOCKED once the work that was submitted is done. CudaError NOT_READY: not within the time."""
        milliseconds = max(1, round(seconds * 1000))  # 0 would wait for ever
        arguments = (ctypes.c_uint32 * (_RESERVED_BYTES // 4))(milliseconds)
        self._do("Lock", pid, arguments)

    def checkpoint(self, pid: int) -> None:
        """LOCKED to CHECKPOINTED: what it holds on GPUs is moved to host memory of the process."""
        self._do("Checkpoint", pid, ctypes.create_string_buffer(_RESERVED_BYTES))

    def restore(self, pid: int, onto: Mapping[str, str] | None = None) -> None:
        """CHECKPOINTED to LOCKED, on the same GPUs, or what lay on each GPU (uuid) on the one that `onto` gives.

        A map names every GPU that it was on, and needs driver 580. Without the memory there it is FAILED for good.
        """
        moves = {old: new for old, new in (onto or {}).items() if old != new}
        pairs = (_Pair * len(onto or {}))(*(_Pair(_bytes(old), _bytes(new)) for old, new in (onto or {}).items()))
        arguments = _RestoreArguments(ctypes.cast(pairs, ctypes.c_void_p), len(pairs)) if moves else _RestoreArguments()
        self._do("Restore", pid, arguments)

    def unlock(self, pid: int) -> None:
        """LOCKED to RUNNING."""
        self._do("Unlock", pid, ctypes.create_string_buffer(_RESERVED_BYTES))

    def _do(
        self,
        call: str,
        pid: int,
        arguments: ctypes.Array[ctypes.c_uint32] | ctypes.Array[ctypes.c_char] | ctypes.Structure,
    ) -> None:
        code = self._library[f"cuCheckpointProcess{call}"](pid, ctypes.byref(arguments))
        if code:
            raise CudaError(call.lower(), pid, code, self._name(code))

    def _ask(self, call: str, pid: int, out: ctypes.c_int) -> int | None:
        code = self._library[f"cuCheckpointProcess{call}"](pid, ctypes.byref(out))
        return None if code else out.value

    def _name(self, code: int) -> str:
        name = ctypes.c_char_p()
        unknown = self._library.cuGetErrorName(code, ctypes.byref(name))
        return "unknown error" if unknown or name.value is None else name.value.decode()
