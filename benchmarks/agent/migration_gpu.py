"""GPUs for bench_migration: fake drivers on both nodes, for a container that keeps its values on a GPU.

The container is suspended by `cuda-checkpoint` on node-1, migrated to node-2, and restored onto the GPU there. Each
node's driver folder reaches the pods as a volume; in a real cluster the agent's device plugin mounts it.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from podium_agent.observe.cgroups import Freezer, find_containers
from podium_devcluster.cluster import Cluster
from podium_suspension.cuda import CudaDriver
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.processes import CudaProcesses

ROOT = Path(__file__).resolve().parents[2]
DRIVER = "var/lib/podium-fake-driver"
NODES = ("node-1", "node-2")
GPU_MEMORY = 4 << 30
VOLUME = f"""
apiVersion: v1
kind: PersistentVolume
metadata: {{name: driver}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteMany]
  storageClassName: driver
  persistentVolumeReclaimPolicy: Retain
  hostPath: {{path: /{DRIVER}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: driver, namespace: default}}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: driver
  volumeName: driver
  resources: {{requests: {{storage: 1Gi}}}}
"""


class Gpus:
    """One GPU on each node.

    This process acts as the agent of node-1: the driver library is loaded into it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._built = cluster.paths.run / "driver"

    def set_up(self) -> None:
        """Build the fake driver and start it on both nodes."""
        make = ["make", "-s", "-C", str(ROOT / "agent/driver"), f"OUT={self._built}"]
        subprocess.run(make, check=True, timeout=120)
        for node in NODES:
            folder = self._folder(node)
            (folder / "lib").mkdir(parents=True)
            for library in self._built.glob("*.so.1"):
                shutil.copy2(library, folder / "lib")
            self._cluster.processes.start(f"gpud@{node}", [str(self._built / "podium-fake-gpud")], self._settings(node))
        self._cluster.kubectl("apply", "-f", "-", stdin=VOLUME)
        os.environ |= self.environment("node-1")
        ctypes.CDLL(str(self._built / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)

    def environment(self, node: str) -> dict[str, str]:
        """Return the environment of an agent on that node."""
        return {
            "PODIUM_FAKE_DRIVER_STATE": str(self._folder(node) / "state"),
            "LD_LIBRARY_PATH": str(self._built),
            "PODIUM_GPU_STATE_DIR": str(self._gpu_state_folder(node)),
        }

    def uuid(self, node: str) -> str:
        """Return the UUID of the node's GPU."""
        command = [str(self._built / "podium-fake-gpud"), "uuid", node, "0"]
        return subprocess.run(command, check=True, timeout=20, capture_output=True, text=True).stdout.strip()

    def used(self, node: str) -> int:
        """Return the bytes in use on the node's GPU."""
        match = re.search(r" memory (\d+)/", self._gpud(node, "show"))
        return int(match[1]) if match else -1

    def occupy(self, node: str, memory: int) -> None:
        """Let another program use this number of bytes of the node's GPU."""
        self._gpud(node, "set", "0", f"memory={memory}")

    def suspend(self, pod: str) -> None:
        """Suspend the pod as the agent of node-1 does at the end of a trial's time slice."""
        freezer = self.freezer(pod)
        processes = CudaProcesses(CudaDriver(str(self._built / "libcuda.so.1")), 10.0, 60.0)
        outcome = asyncio.run(
            CudaCheckpoint(processes, Freeze(10.0), GpuStateNotes(self._gpu_state_folder("node-1"))).suspend((freezer,))
        )
        if outcome.code != "Checkpointed":
            raise RuntimeError(f"not suspended: {outcome}")

    def freezer(self, pod: str) -> Freezer:
        """Return the freezer of the pod's container."""
        status = json.loads(self._cluster.kubectl("get", "pod", pod, "-o", "json"))["status"]
        identity = status["containerStatuses"][0]["containerID"].rpartition("/")[2]
        return find_containers(Path("/proc"), Path("/sys/fs/cgroup"), frozenset({identity}))[identity].freezer

    def _gpud(self, node: str, *words: str) -> str:
        command = [str(self._built / "podium-fake-gpud"), *words]
        done = subprocess.run(command, env=self._settings(node), check=True, timeout=20, capture_output=True, text=True)
        return done.stdout

    def _gpu_state_folder(self, node: str) -> Path:
        return self._cluster.paths.run / f"gpu-state-{node}"

    def _folder(self, node: str) -> Path:
        return self._cluster.node_root(node) / DRIVER

    def _settings(self, node: str) -> dict[str, str]:
        return {"FAKE_GPU_DIR": str(self._folder(node)), "FAKE_GPU_NODE": node, "FAKE_GPU_MEMORY": str(GPU_MEMORY)}
