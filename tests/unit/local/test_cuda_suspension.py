"""`cuda-checkpoint` in local mode: trials that do not fit on a GPU together take turns on it, and lose no step.

The driver is the fake one, or the machine's own with `make test-gpu`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest
from cuda_node import REAL, CudaNode
from local_scene import Scene, wait_until

from podium_suspension.gpu_memory import read_memory

TRIALS, STEPS = 3, 100 if REAL else 40
STATE = "PODIUM_FAKE_DRIVER_STATE"
QUANTUM = 1.0  # seconds; the planner lengthens it where switches take long

# counts its steps in GPU memory, and prints each: a restore that changes the memory makes a gap
SCRIPT = """
import ctypes, json, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def ok(code):
    if code: sys.exit(f"CUDA error {code}")
device, context, block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
step, eight = ctypes.c_uint64(0), ctypes.c_size_t(8)
ok(cuda.cuInit(0))
ok(cuda.cuDeviceGet(ctypes.byref(device), 0))
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(64 << 20)))
ok(cuda.cuMemcpyHtoD_v2(block, ctypes.byref(step), eight))
while step.value < int(sys.argv[1]):
    time.sleep(0.1)
    ok(cuda.cuMemcpyDtoH_v2(ctypes.byref(step), block, eight))
    step.value += 1
    ok(cuda.cuMemcpyHtoD_v2(block, ctypes.byref(step), eight))
    print(json.dumps({"step": step.value, "score": 1.0 / step.value}), flush=True)
"""


class GpuScene(Scene):
    """A folder with a job whose trials use a GPU."""

    def write_job(self, *methods: str, percent: int = 60) -> None:
        """Write a job whose trials declare this part of a GPU's memory."""
        (self.folder / "train.py").write_text(SCRIPT)
        self.write(
            checkpoint=False,
            trials={"max": TRIALS, "maxSteps": STEPS},
            gpus={"memory": str(total_memory() * percent // 100)},
            policy={"name": "round_robin", "settings": {"quantum": QUANTUM}},
            suspension={"methods": list(methods)},
            template={"spec": {"containers": [{"name": "main", "image": "not/used", "command": self.command()}]}},
        )

    def command(self) -> list[str]:
        state = f"{STATE}={os.environ.get(STATE, '')}"  # a run passes no variable of Podium on to its trials
        return ["env", state, sys.executable, "-S", "-E", "train.py", str(STEPS)]

    def suspensions(self) -> list[dict[str, Any]]:
        """Return the stored suspensions of all trials."""
        return [one for trial in self.trials() for one in trial["status"].get("suspensions", {}).get("recent", [])]

    def steps(self) -> list[list[int]]:
        """Return the printed steps by attempt."""
        logs = sorted((self.run_folder / "logs").glob("*.log"))
        return [[json.loads(line)["step"] for line in log.read_text().splitlines()] for log in logs]


def total_memory() -> int:
    pynvml.nvmlInit()
    total = int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total)
    pynvml.nvmlShutdown()
    return total


@pytest.fixture
def gpu_scene(tmp_path: Path, cuda_node: CudaNode, monkeypatch: pytest.MonkeyPatch) -> GpuScene:
    """Return a scene whose processes find the driver."""
    if not REAL:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(Path(cuda_node.library).parent))
    return GpuScene(tmp_path)


def test_trials_larger_than_half_a_gpu_take_turns_and_lose_no_step(gpu_scene: GpuScene) -> None:
    gpu_scene.write_job("cuda-checkpoint")
    before, most = len(read_memory().held), 0
    with gpu_scene.running("--gpus", "0") as process:
        while process.poll() is None:
            most = max(most, len(read_memory().held) - before)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert most == 1  # process with memory on the GPU, at any moment
    assert gpu_scene.steps() == [list(range(1, STEPS + 1))] * TRIALS
    done = gpu_scene.suspensions()
    assert len(done) >= TRIALS, output
    assert {one["method"] for one in done} == {"cuda-checkpoint"}
    full = [one for one in done if one["bytes"] >= 64 << 20]  # others came before the trial had taken its memory
    assert len(full) >= TRIALS, done


def test_a_refused_suspension_lets_the_trial_run_and_the_next_method_is_used(
    gpu_scene: GpuScene, cuda_node: CudaNode
) -> None:
    gpu_scene.write_job("cuda-checkpoint", "freeze", percent=30)
    with gpu_scene.running("--gpus", "0") as process:
        wait_until(lambda: bool(gpu_scene.trials()))
        cuda_node.fault("fail=lock")
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert gpu_scene.steps() == [list(range(1, STEPS + 1))] * TRIALS
    assert "freeze" in {one["method"] for one in gpu_scene.suspensions()}


def test_ctrl_c_resumes_what_fits_and_the_search_continues_later(gpu_scene: GpuScene) -> None:
    gpu_scene.write_job("cuda-checkpoint")
    with gpu_scene.running("--gpus", "0") as process:
        wait_until(lambda: len(gpu_scene.suspensions()) > 0)
        process.terminate()
        process.communicate(timeout=300)
    assert read_memory().held == {} or REAL
    gpu_scene.run("--gpus", "0")
    assert all(trial["status"]["phase"] == "Succeeded" for trial in gpu_scene.trials())
