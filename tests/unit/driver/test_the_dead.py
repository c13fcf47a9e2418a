"""What a dead process held can be had at once and for good: what NVML says is free, a restore gets.

The agent looks at the free memory just before it asks for a restore. One that is refused then is lost for good.
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

from podium_agent.suspension.cuda import CudaDriver, ProcessState
from podium_agent.suspension.memory import read_memory

SIZE = 64 << 20
STAYS = ("sh", "-c", '"$@"; kill -STOP $$', "sh")  # a shell that outlives its program


@pytest.fixture
def gpus(cuda_node: Any) -> Iterator[list[Any]]:
    if cuda_node.folder is None:
        pytest.skip("a real driver has no samples to wait for")
    pynvml.nvmlInit()
    yield [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
    pynvml.nvmlShutdown()


def sampled(gpu: Any) -> None:
    """The daemon has looked at all processes since now: it has found one that begins now."""
    environment = {"NVIDIA_VISIBLE_DEVICES": pynvml.nvmlDeviceGetUUID(gpu)}
    with subprocess.Popen(["sleep", "600"], env={**os.environ, **environment}) as sleeper:
        until(lambda: sleeper.pid in {one.pid for one in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)}, "a sample")
        sleeper.kill()


def has_died(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("container", [(), STAYS], ids=["nobody waits for it", "its shell stays"])
def test_what_the_dead_held_is_not_taken_again_by_what_they_declared(
    cuda_node: Any, gpus: list[Any], container: tuple[str, ...]
) -> None:
    uuid, total = pynvml.nvmlDeviceGetUUID(gpus[0]), int(pynvml.nvmlDeviceGetMemoryInfo(gpus[0]).total)
    driver, waiting = CudaDriver(cuda_node.library), cuda_node.start(total // 2 + SIZE)
    driver.lock(waiting.pid, 5.0)
    driver.checkpoint(waiting.pid)
    declares = {"NVIDIA_VISIBLE_DEVICES": uuid, "PODIUM_GPU_MEMORY_BYTES": str(total // 2)}
    cuda_node.start(SIZE, container=container, environment=declares)
    (holder,) = (pid for pid, held in read_memory().held.items() if held.get(uuid) == SIZE)
    sampled(gpus[1])
    os.kill(holder, 9)
    if not container:
        until(lambda: has_died(holder), "its end")
    until(lambda: read_memory().free[uuid] == total, "what it held is free")
    for _ in range(2):  # the first of these samples lets go of what the driver knew of it
        sampled(gpus[1])
    driver.restore(waiting.pid)
    driver.unlock(waiting.pid)
    assert driver.state(waiting.pid) is ProcessState.RUNNING
    assert waiting.goes_on()


def test_what_nvml_calls_free_a_program_in_a_container_can_have(
    driver: Path, gpud: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot see who lives on the host, so both believe the daemon: here one that has not looked since a death."""
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
        if read_memory().free[uuid] < 9 << 30:  # and if not, it can be had
            gpud.process.send_signal(signal.SIGCONT)
            until(lambda: read_memory().free[uuid] >= 9 << 30, "what the dead one held is free")
        cuda.restore(waiting)
        cuda.unlock(waiting)
        assert shell.goes_on()
    finally:
        gpud.process.send_signal(signal.SIGCONT)
        node.clear()
