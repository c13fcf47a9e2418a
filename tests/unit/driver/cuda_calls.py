"""The checkpoint functions of libcuda.so.1 through ctypes: result codes, states and arguments."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml
import pytest

RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)
CALLS = ("Lock", "Checkpoint", "Restore", "Unlock")
TRANSITIONS = {
    (RUNNING, "Lock"): LOCKED,
    (LOCKED, "Checkpoint"): CHECKPOINTED,
    (CHECKPOINTED, "Restore"): LOCKED,
    (LOCKED, "Unlock"): RUNNING,
}
CALLS_TO_REACH = {
    RUNNING: (),
    LOCKED: ("Lock",),
    CHECKPOINTED: ("Lock", "Checkpoint"),
    FAILED: ("Lock", "Checkpoint", "Restore"),
}
OK, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE = 0, 1, 2, 3, 100
OPERATING_SYSTEM, ILLEGAL_STATE, NOT_FOUND, NOT_READY, UNKNOWN = 304, 401, 500, 600, 999
MI = 1 << 20
SIZE = 64 * MI


class Pair(ctypes.Structure):
    """The type CUcheckpointGpuPair."""

    _fields_ = (("old", ctypes.c_ubyte * 16), ("new", ctypes.c_ubyte * 16))


class RestoreArguments(ctypes.Structure):
    """The type CUcheckpointRestoreArgs of CUDA 13.0."""

    _fields_ = (
        ("pairs", ctypes.POINTER(Pair)),
        ("count", ctypes.c_uint),
        ("reserved", ctypes.c_char * 44),
        ("reserved1", ctypes.c_uint64),
    )


class Cuda:
    """The library. It looks up functions as cuda-bindings do, through cuGetProcAddress_v2 only."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)

    def function(self, name: str) -> tuple[int, Any]:
        pointer = ctypes.c_void_p()
        code = self._library.cuGetProcAddress_v2(name.encode(), ctypes.byref(pointer), 13000, ctypes.c_uint64(0), None)
        return code, ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(pointer.value or 0)

    def call(self, name: str, pid: int, arguments: Any = None) -> int:
        code, function = self.function(f"cuCheckpointProcess{name}")
        assert code == OK
        if name == "Lock" and arguments is None:
            arguments = (ctypes.c_uint * 16)(5000)  # a lock must have a time limit
        return int(function(pid, None if arguments is None else ctypes.addressof(arguments)))

    def query(self, name: str, pid: int) -> tuple[int, int]:
        out = ctypes.c_int(-1)
        return self.function(f"cuCheckpointProcess{name}")[1](pid, ctypes.addressof(out)), out.value

    def state(self, pid: int) -> int:
        return self.query("GetState", pid)[1]

    def init(self) -> int:
        return int(self._library.cuInit(0))


@pytest.fixture
def cuda(cuda_node: Any) -> Cuda:
    cuda = Cuda(cuda_node.library)
    assert cuda.init() == OK
    return cuda


def memory_by_pid(gpu: int = 0) -> dict[int, int]:
    """Return the used bytes of each process on a GPU, as NVML lists them."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
    listed = {one.pid: one.usedGpuMemory for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    pynvml.nvmlShutdown()
    return listed


def gpu_uuid(gpu: int) -> Any:
    """Return the UUID of a GPU as sixteen bytes; skip the test if there is no such GPU."""
    pynvml.nvmlInit()
    if gpu >= pynvml.nvmlDeviceGetCount():
        pytest.skip("needs two GPUs")
    text = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(gpu))
    pynvml.nvmlShutdown()
    return (ctypes.c_ubyte * 16)(*bytes.fromhex(text.removeprefix("GPU-").replace("-", "")))
