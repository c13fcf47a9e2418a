"""The fake GPU driver, and programs in cgroups of their own, for bench_checkpoint."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from cuda_node import CudaNode, Program, until  # noqa: E402

from podium_agent.observe.cgroups import Freezer  # noqa: E402

__all__ = ["ROOT", "CudaNode", "Program", "container", "driver"]
V1 = Path("/sys/fs/cgroup/freezer")


@contextmanager
def driver(folder: Path, memory: int) -> Iterator[CudaNode]:
    """Build and run the fake driver with one GPU of `memory` bytes."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "agent/driver"), f"OUT={folder}"], check=True, timeout=300)
    environment = {
        "FAKE_GPU_DIR": str(folder / "node"),
        "FAKE_GPU_NODE": "bench",
        "FAKE_GPUS": "1",
        "FAKE_GPU_MEMORY": str(memory),
    }
    os.environ["PODIUM_FAKE_DRIVER_STATE"] = str(folder / "node" / "state")
    gpud = folder / "podium-fake-gpud"
    daemon = subprocess.Popen([str(gpud), "run"], env=environment, stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    daemon.stdout.readline()
    ctypes.CDLL(str(folder / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    node = CudaNode(str(folder / "libcuda.so.1"), folder, folder / "node", gpud)
    try:
        yield node
    finally:
        node.clear()
        daemon.terminate()
        daemon.communicate(timeout=20)


@contextmanager
def container(pid: int) -> Iterator[Freezer]:
    """Put the process into a cgroup of its own for the block."""
    unified = not V1.is_dir()
    cgroup = (V1.parent if unified else V1) / f"podium-bench-{uuid.uuid4().hex[:8]}"
    cgroup.mkdir()
    (cgroup / "cgroup.procs").write_text(str(pid))
    freezer = Freezer(cgroup, unified)
    try:
        yield freezer
    finally:
        freezer.ask(False)
        ((V1.parent if unified else V1) / "cgroup.procs").write_text(str(pid))
        until(lambda: not freezer.processes(), "an empty cgroup")
        cgroup.rmdir()
