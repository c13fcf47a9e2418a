"""Out-of-GPU-memory errors in the termination message of a failed container. `observe` uses it.

The texts are those of PyTorch, JAX, TensorFlow, CuPy, and the CUDA driver and runtime.
"""

from __future__ import annotations

import re

GPU_MEMORY_EXCEEDED = "GPUMemoryExceeded"
LONGEST_QUOTE = 200
_TEXTS = re.compile(
    r"^.*(?:CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|"
    r"RESOURCE_EXHAUSTED: Out of memory|OOM when allocating tensor).*$",
    re.MULTILINE,
)


def out_of_memory(termination_message: str) -> str:
    """Return the last line that reports the error, shortened; empty if there is none."""
    matches = _TEXTS.findall(termination_message)
    return matches[-1].strip()[:LONGEST_QUOTE] if matches else ""
