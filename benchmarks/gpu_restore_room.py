"""How much must be free on a real GPU for a restore: all but some bytes are taken, and the driver is asked.

    python benchmarks/gpu_restore_room.py [MIBIBYTES ...]        (root, a driver of 570 or newer)

For each size, a program of its own for each try: what NVML listed for it before its checkpoint, how much more or less
than that was free, and what the restore answered (0: it is back; 2: out of memory, and it is lost). The agent's
RESTORE_SCRATCH comes from here; the figures are in benchmarks/results/bench-gpu-nvidia-h100-80gb-hbm3.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pynvml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/unit/driver")]

from cuda_calls import MI, OK, Cuda, memory_by_pid  # noqa: E402
from cuda_node import CudaNode  # noqa: E402

MORE = (-64, -16, -4, 0, 2, 4, 6, 8, 16, 64)  # MiB beside what was listed


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or [64, 4096]
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    with tempfile.TemporaryDirectory() as folder:
        node = CudaNode("libcuda.so.1", Path(folder))
        cuda = Cuda(node.library)
        assert cuda.init() == OK
        for size in sizes:
            for more in MORE:
                program = node.start(size * MI)
                listed = memory_by_pid()[program.pid]
                assert [cuda.call(call, program.pid) for call in ("Lock", "Checkpoint")] == [OK, OK]
                node.occupy_memory(0, listed + more * MI)
                beside = int(pynvml.nvmlDeviceGetMemoryInfo(handle).free) - listed
                code = cuda.call("Restore", program.pid)
                node.clear()
                print(f"listed {listed / MI:.0f} MiB, free {beside / MI:+.1f} MiB beside that: {code}", flush=True)


if __name__ == "__main__":
    main()
