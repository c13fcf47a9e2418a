"""GPU memory for train.py, through the driver's own library (libcuda), if there is one: without it nothing happens.

The network is far too small to be worth a GPU's arithmetic. What is real is the memory: a block of it is taken, and the
network lies there between two epochs, so whoever moves that block about has to bring it back as it was.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
FOR_THE_CONTEXT = 4  # the driver's own part of what the trial declared: one in so many


class Block:
    """A block on the first GPU, current in the thread that made it."""

    def __init__(self, cuda: ctypes.CDLL, size: int) -> None:
        self._cuda = cuda
        self._at = ctypes.c_uint64()
        code = cuda.cuMemAlloc_v2(ctypes.byref(self._at), ctypes.c_size_t(size))
        if code == OUT_OF_MEMORY:
            sys.exit(f"CUDA out of memory: {size} bytes were asked for")
        self._check(code)

    def store(self, arrays: Sequence[NDArray[np.float32]]) -> None:
        """One after the other, from the block's beginning."""
        at = self._at.value
        for array in arrays:
            data = np.ascontiguousarray(array)
            self._check(self._cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(at), _address(data), ctypes.c_size_t(data.nbytes)))
            at += data.nbytes

    def load(self, arrays: Sequence[NDArray[np.float32]]) -> None:
        """Overwrites them with what was stored."""
        at = self._at.value
        for array in arrays:
            size = ctypes.c_size_t(array.nbytes)
            self._check(self._cuda.cuMemcpyDtoH_v2(_address(array), ctypes.c_uint64(at), size))
            at += array.nbytes

    @staticmethod
    def _check(code: int) -> None:
        if code:
            sys.exit(f"CUDA error {code}")


def open_block(least: int) -> Block | None:
    """A block of what $PODIUM_GPU_MEMORY_BYTES declares (less a part for the driver), at least `least` bytes; None
    where there is no driver or no GPU.
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
    return Block(cuda, max(declared - declared // FOR_THE_CONTEXT, least))


def _address(array: NDArray[np.float32]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
