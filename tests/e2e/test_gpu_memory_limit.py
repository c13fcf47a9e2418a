"""The limit of a trial's GPU memory: Podium's variable, the hook of NVIDIA's container toolkit, and the fake driver.

The test is the container runtime: it makes a cgroup (version 2, in a mount namespace of its own) and the container's
bundle, and calls the hook as CDI specifications do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cuda_node import driver, unique_node_name  # the fixture builds the fake driver

from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_devcluster.artifacts import nvidia
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_operator.act.pod_manifest import PodRules, make_pod

__all__ = ["driver"]
pytestmark = pytest.mark.e2e
MI = 1 << 20
MEMORY, ALLOWED, TOO_MUCH = 64 * MI, 48 * MI, 32 * MI  # declared by the job; allocated first, and then beyond the limit
OUT_OF_MEMORY = 2  # CUresult
# Joins a cgroup, waits for a line, allocates each number of bytes, and prints the result codes. argv: folder, library,
# bytes.
CONTAINER = """
import ctypes, os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
print("ready", flush=True)
sys.stdin.readline()
cuda = ctypes.CDLL(sys.argv[2])
device, context, block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
codes = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0)]
codes += [cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)]
assert codes == [0] * 4, codes
print(*[cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(int(size))) for size in sys.argv[3:]])
"""
# The runtime. Reads from its input: environment, hook with its arguments, library, sizes, and whether to limit.
RUNTIME = """
import json, os, subprocess, sys
given = json.load(sys.stdin)
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=True)
folder, bundle = "/sys/fs/cgroup/podium-test-" + str(os.getpid()), given["bundle"]
os.mkdir(folder)
try:
    os.makedirs(bundle, exist_ok=True)
    with open(bundle + "/config.json", "w") as file:
        json.dump({"ociVersion": "1.2.0", "process": {"env": given["environment"], "cwd": "/"}}, file)
    command = [sys.executable, "-S", "-E", "-c", given["container"], folder, given["library"], *given["sizes"]]
    container = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert container.stdout.readline() == "ready\\n"
    state = {"ociVersion": "1.2.0", "id": "test", "status": "creating", "pid": container.pid, "bundle": bundle}
    hook = subprocess.run(given["hook"], input=json.dumps(state), capture_output=True, text=True, timeout=60)
    out, _ = container.communicate("go\\n", timeout=60)
    json.dump({"hook": hook.returncode, "said": hook.stderr, "codes": [int(code) for code in out.split()]}, sys.stdout)
finally:
    os.rmdir(folder)
"""


@pytest.fixture
def state(driver: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder of a running fake driver with one GPU."""
    folder = tmp_path / "driver"
    environment = {"FAKE_GPU_DIR": str(folder), "FAKE_GPU_NODE": unique_node_name("limits")}
    command = [str(driver / "podium-fake-gpud"), "run"]
    daemon = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    assert daemon.stdout.readline().startswith("podium-fake-gpud: node")
    yield folder
    daemon.terminate()
    daemon.communicate(timeout=60)


def variables(*, limit: bool) -> list[str]:
    """Return the environment of a trial whose job declares MEMORY, as a runtime gets it."""
    spec = {
        "objective": {"metric": "loss", "direction": "minimize"},
        "parameters": [{"name": "lr", "min": 0.1, "max": 1.0}],
        "trials": {"max": 1, "maxSteps": 10},
        "gpus": {"memory": "64Mi"},
        "template": {"spec": {"containers": [{"name": "train", "image": "i", "command": ["c"]}]}},
    }
    meta = {"name": "job", "namespace": "lab", "uid": "u"}
    job = HyperParamJob.model_validate({"metadata": meta, "spec": spec})
    own = {"job": "job", "number": 0, "parameters": {"lr": 0.5}}
    trial = HyperParamTrial.model_validate({"metadata": {**meta, "name": "job-0"}, "spec": own})
    pod: Any = make_pod(job, trial, 0, PodRules("podium-scheduler", "podium.dev/gpu", limits_gpu_memory=limit))
    return [f"{one['name']}={one.get('value', '')}" for one in pod["spec"]["containers"][0]["env"]]


def run_container(driver: Path, state: Path, environment: list[str]) -> dict[str, Any]:
    """Start a container with the hook; return the hook's exit code and output, and the codes of the allocations."""
    root = state.parent / "root"
    (root / "usr/lib64").mkdir(parents=True, exist_ok=True)
    shutil.copy(driver / "libnvidia-ml.so.1", root / "usr/lib64")
    programs = nvidia.ensure(Cache.default(), Progress())
    environ = os.environ | {"PODIUM_FAKE_DRIVER_STATE": str(state / "state")}
    uuid = subprocess.check_output(
        [str(driver / "podium-fake-gpud"), "uuid", unique_node_name("limits"), "0"], text=True
    ).strip()
    hook = [str(programs / "nvidia-cdi-hook"), "apply-cuda-memory-limits", "--driver-root", str(root), "--gpu-id", uuid]
    given = {
        "bundle": str(state.parent / "bundle"),
        "environment": environment,
        "container": CONTAINER,
        "library": str(driver / "libcuda.so.1"),
        "sizes": [str(ALLOWED), str(TOO_MUCH)],
        "hook": hook,
    }
    command = ["unshare", "--mount", sys.executable, "-S", "-E", "-c", RUNTIME]
    done = subprocess.run(
        command, input=json.dumps(given), env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root (a mount namespace, cgroups)")
def test_a_trial_gets_no_more_gpu_memory_than_its_job_declares(driver: Path, state: Path) -> None:
    limited = run_container(driver, state, variables(limit=True))
    assert limited["hook"] == 0, limited["said"]
    assert limited["codes"] == [0, OUT_OF_MEMORY]
    free = run_container(driver, state, variables(limit=False))
    assert (free["hook"], free["codes"]) == (0, [0, 0])
    kept = (state / "memory-limits").read_text().splitlines()
    assert len(kept) <= 1, "the limit of a removed cgroup is forgotten with the next one"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root (a mount namespace, cgroups)")
def test_a_limit_beyond_the_gpus_memory_ends_the_start_of_the_container(driver: Path, state: Path) -> None:
    refused = run_container(driver, state, ["NVIDIA_GPU_MEMORY_LIMIT=1000000"])
    assert refused["hook"] != 0
    assert "failed to set memory limits" in refused["said"]
