"""GPU memory for train.py through the driver's library (libcuda), where it is installed.

The network is too small to be trained on a GPU. The memory is real: the script allocates a block, and the network is
stored there between two epochs. So a suspension that moves the block has to restore it exactly.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
CONTEXT_SHARE = 4  # the driver's context takes 1/4 of the memory that the trial declares


class Block:
    """A block of memory on the first GPU; only the thread that made it may use it."""

    def __init__(self, cuda: ctypes.CDLL, size: int) -> None:
        self._cuda = cuda
        self._at = ctypes.c_uint64()
        code = cuda.cuMemAlloc_v2(ctypes.byref(self._at), ctypes.c_size_t(size))
        if code == OUT_OF_MEMORY:
            sys.exit(f"CUDA out of memory: {size} bytes were requested")
        self._check(code)

    def store(self, arrays: Sequence[NDArray[np.float32]]) -> None:
        """Copy the arrays to the block, one after the other."""
        at = self._at.value
        for array in arrays:
            data = np.ascontiguousarray(array)
            self._check(self._cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(at), _address(data), ctypes.c_size_t(data.nbytes)))
            at += data.nbytes

    def load(self, arrays: Sequence[NDArray[np.float32]]) -> None:
        """Overwrite the arrays with the stored values."""
        at = self._at.value
        for array in arrays:
            size = ctypes.c_size_t(array.nbytes)
            self._check(self._cuda.cuMemcpyDtoH_v2(_address(array), ctypes.c_uint64(at), size))
            at += array.nbytes

    @staticmethod
    def _check(code: int) -> None:
        if code:
            sys.exit(f"CUDA error {code}")


def open_block(minimum: int) -> Block | None:
    """Return a block on the first GPU, or None without a driver or a GPU.

    Its size is $PODIUM_GPU_MEMORY_BYTES without the share of the driver's context, but at least `minimum` bytes.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return None
    if cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) or cuda.cuCtxSetCurrent(context):
        return None
    declared = int(os.environ.get("PODIUM_GPU_MEMORY_BYTES", "0"))
    return Block(cuda, max(declared - declared // CONTEXT_SHARE, minimum))


def _address(array: NDArray[np.float32]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
