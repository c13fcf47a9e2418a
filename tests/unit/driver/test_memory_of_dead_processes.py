"""Memory of dead processes: a restore gets all memory that NVML reports as free.

The agent reads the free memory just before a restore. A restore that runs out of memory fails for good.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from cuda_node import CudaNode, until

from podium_suspension.cuda import CudaDriver, ProcessState
from podium_suspension.gpu_memory import read_memory

SIZE = 64 << 20
SURVIVING_SHELL = ("sh", "-c", '"$@"; kill -STOP $$', "sh")  # a shell that outlives its program


@pytest.fixture
def gpus(cuda_node: Any) -> Iterator[list[Any]]:
    if cuda_node.folder is None:
        pytest.skip("fake driver only: a real driver takes no samples")
    pynvml.nvmlInit()
    yield [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
    pynvml.nvmlShutdown()


def wait_for_sample(gpu: Any) -> None:
    """Wait until the daemon has seen a process that starts now, and so all processes."""
    environment = {"NVIDIA_VISIBLE_DEVICES": pynvml.nvmlDeviceGetUUID(gpu)}
    with subprocess.Popen(["sleep", "600"], env={**os.environ, **environment}) as sleeper:
        until(lambda: sleeper.pid in {one.pid for one in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)}, "a sample")
        sleeper.kill()


def has_died(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("container", [(), SURVIVING_SHELL], ids=["remains a zombie", "its shell survives"])
def test_memory_of_a_dead_process_is_not_counted_again_as_declared_memory(
    cuda_node: Any, gpus: list[Any], container: tuple[str, ...]
) -> None:
    uuid, total = pynvml.nvmlDeviceGetUUID(gpus[0]), int(pynvml.nvmlDeviceGetMemoryInfo(gpus[0]).total)
    driver, waiting = CudaDriver(cuda_node.library), cuda_node.start(total // 2 + SIZE)
    driver.lock(waiting.pid, 5.0)
    driver.checkpoint(waiting.pid)
    declares = {"NVIDIA_VISIBLE_DEVICES": uuid, "PODIUM_GPU_MEMORY_BYTES": str(total // 2)}
    cuda_node.start(SIZE, container=container, environment=declares)
    (holder,) = (pid for pid, held in read_memory().held.items() if held.get(uuid) == SIZE)
    wait_for_sample(gpus[1])
    os.kill(holder, 9)
    if not container:
        until(lambda: has_died(holder), "the process has died")
    until(lambda: read_memory().free[uuid] == total, "its memory is free")
    for _ in range(2):  # the first of these samples removes its entry
        wait_for_sample(gpus[1])
    driver.restore(waiting.pid)
    driver.unlock(waiting.pid)
    assert driver.state(waiting.pid) is ProcessState.RUNNING
    assert waiting.continues()


def test_a_program_in_a_container_can_use_all_memory_that_nvml_reports_as_free(
    driver: Path, gpud: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both rely on the daemon, which has taken no sample since a process died.

    The container cannot see the host.
    """
    ctypes.CDLL(str(driver / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    monkeypatch.setenv("PODIUM_FAKE_DRIVER_STATE", str(gpud.folder / "state"))
    node, uuid = CudaNode(str(driver / "libcuda.so.1"), tmp_path, gpud.folder, Path(gpud.program)), gpud.uuid(0)
    cuda = CudaDriver(node.library)
    try:
        container = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
        shell = node.start(9 << 30, container=container, environment={"NVIDIA_VISIBLE_DEVICES": uuid})
        waiting = int(Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text())
        cuda.lock(waiting, 5.0)
        cuda.checkpoint(waiting)
        holder = node.start(9 << 30)
        gpud.process.send_signal(signal.SIGSTOP)
        holder.end()
        if read_memory().free[uuid] < 9 << 30:  # otherwise the memory is free already
            gpud.process.send_signal(signal.SIGCONT)
            until(lambda: read_memory().free[uuid] >= 9 << 30, "the memory of the dead process is free")
        cuda.restore(waiting)
        cuda.unlock(waiting)
        assert shell.continues()
    finally:
        gpud.process.send_signal(signal.SIGCONT)
        node.clear()
