"""How a process says that it asked for more GPU memory than there was. Used by `observe` on a failed pod's last words.

The texts of PyTorch, JAX, TensorFlow, CuPy and the CUDA driver and runtime themselves.
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


def out_of_memory(last_words: str) -> str:
    """The last line that says so, cut; empty if none does. `last_words`: a container's termination message."""
    found = _TEXTS.findall(last_words)
    return found[-1].strip()[:LONGEST_QUOTE] if found else ""
