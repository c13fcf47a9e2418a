"""How much memory must be free on a real GPU for a restore.

    python -m benchmarks.agent.bench_restore_headroom [MEBIBYTES ...]        (root, NVIDIA driver 570 or newer)

Each try of each size has a program of its own. The benchmark occupies all GPU memory but a few bytes and restores the
program. It prints what NVML listed for the program before its checkpoint, how much more or less than that was free, and
the result of the restore (0: restored; 2: out of memory, and the program is lost). The agent's RESTORE_SCRATCH comes
from these figures, which are in results/bench-gpu-nvidia-h100-80gb-hbm3.md. The last line is RESULT {json}.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pynvml

from benchmarks.command_line import Parser
from benchmarks.output import result_line

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/unit/driver")]

from cuda_calls import MI, OK, Cuda, memory_by_pid  # noqa: E402
from cuda_node import CudaNode  # noqa: E402

HEADROOM = (-64, -16, -4, 0, 2, 4, 6, 8, 16, 64)  # MiB beyond what NVML listed


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[64, 4096], metavar="MEBIBYTES", help="(64 and 4096)")
    sizes = parser.parse_args().sizes
    codes: dict[str, int] = {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise SystemExit(f"no NVIDIA GPU: {error}; run this on a machine with driver 570 or newer") from None
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    with tempfile.TemporaryDirectory() as folder:
        node = CudaNode("libcuda.so.1", Path(folder))
        cuda = Cuda(node.library)
        assert cuda.init() == OK
        for size in sizes:
            for more in HEADROOM:
                program = node.start(size * MI)
                listed = memory_by_pid()[program.pid]
                assert [cuda.call(name, program.pid) for name in ("Lock", "Checkpoint")] == [OK, OK]
                node.occupy_memory(0, listed + more * MI)
                beside = int(pynvml.nvmlDeviceGetMemoryInfo(handle).free) - listed
                code = cuda.call("Restore", program.pid)
                node.clear()
                codes[f"{size} MiB, {more:+d} MiB"] = code
                print(f"listed {listed / MI:.0f} MiB, free {beside / MI:+.1f} MiB beyond that: {code}", flush=True)
    print(result_line({"restore_codes": codes}))


if __name__ == "__main__":
    main()
