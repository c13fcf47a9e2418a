"""A one-node cluster with an agent, for the integration tests of the agent.

The agent runs as a process of this machine with paths into the node, so that tests can kill and start it. The GPU is
simulated by the fake driver.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from kube_reads import ApiReader

from podium_core.schema.template.cpu_downsizing import CPU_ANNOTATION, to_annotation
from podium_devcluster.cluster import Cluster
from podium_operator.act.pod_resources import downsize_cpu

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/busybox:1"
NODE = "node-1"
COUNT = """trap 'exit 0' TERM; i=0
while :; do i=$((i+1)); echo "{\\"epoch\\": $i, \\"acc\\": 0.$i}"; sleep 0.05; done"""

# writes a checkpoint after its first step and on request; continues from its checkpoint
SAVE = """trap 'exit 0' TERM; cd /ckpt; i=0
[ -f podium-checkpoint.json ] && i=$(sed 's/[^0-9]*\\([0-9]*\\).*/\\1/' podium-checkpoint.json)
save() { echo "{\\"step\\": $i, \\"onRequest\\": true}" > new
rm -f podium-checkpoint-request; mv new podium-checkpoint.json; }
while :; do i=$((i+1)); echo "{\\"epoch\\": $i, \\"acc\\": 0.$i}"
if [ $i = 1 ] || [ -e podium-checkpoint-request ]; then save; fi; sleep 0.05; done"""


def until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """Wait for a condition and return its result; fail with `what` after the timeout."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.02)


@dataclass
class Node:
    """The node, its agent and the trials on it."""

    cluster: Cluster
    environment: dict[str, str]
    log: Path
    agent: subprocess.Popen[bytes] | None = None
    epoch: int = 0
    uuid: str = ""
    log_before: int = 0
    trials: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()  # a command that starts the agent elsewhere, such as in the node's network

    def start(self) -> None:
        with self.log.open("ab") as file:
            self.log_before = file.tell()
            self.agent = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "podium_agent.main"], env=self.environment, stderr=file
            )

    def wait_until_ready(self) -> None:
        """Wait until the agent's device plugin is ready; before that the kubelet fails new pods."""
        until(lambda: b" slots, " in self.log.read_bytes()[self.log_before :], "the new agent's device plugin")
        until(lambda: allocatable(self) == "4", "4 slots")

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.agent.send_signal(number)
            self.agent.wait(20)

    @cached_property
    def _reads(self) -> ApiReader:
        return ApiReader(self.cluster)

    def get(self, *words: str) -> dict[str, Any]:
        return self._reads.get(*words)

    def gpunode(self) -> dict[str, Any]:
        return self.get("gpunode", NODE)

    def states(self) -> dict[str, str]:
        return {one["trial"]: one["state"] for one in self.gpunode()["status"]["gpus"][0].get("trials", [])}

    def create(self, manifest: dict[str, Any], folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps(manifest))
        self.cluster.kubectl("apply", "-f", str(path))

    def add_trial(
        self,
        number: int,
        folder: Path,
        gpus: int = 1,
        *,
        checkpoints: bool = False,
        attempt: int = 0,
        methods: str = "freeze",
        cpu: str | None = None,
        gate_slot: bool = False,
        change: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        """Create a trial and its pod as the operator does.

        Without a GPU the pod has no slot, no gate and no entry in a run queue. With `checkpoints` it writes checkpoints
        to a folder of the node and has the hook. With `cpu` its CPU request is downsized while it is suspended. With
        `gate_slot` the gate has a slot, too, as operators of earlier releases create it. `change` changes the pod's
        manifest.
        """
        name = f"count-{number}"
        spec = {"job": "count", "number": number, "parameters": {"lr": 0.1}}
        base = {"apiVersion": "podium.dev/v1alpha1", "kind": "HyperParamTrial"}
        self.create({**base, "metadata": {"name": name, "namespace": "default"}, "spec": spec}, folder)
        uid = self.get("hpt", name)["metadata"]["uid"]
        reading = {"metric": "acc", "direction": "maximize", "stepKey": "epoch", "format": "json", "container": "train"}
        share = {"requests": {"podium.dev/gpu": "1"}, "limits": {"podium.dev/gpu": "1"}}
        image = {"image": IMAGE, "imagePullPolicy": "Never"}
        files = {"name": "podium-gate", "mountPath": "/podium", "readOnly": True}
        gate = image | ({"resources": share} if gate_slot else {"volumeMounts": [files]})
        owner = {**base, "name": name, "uid": uid, "controller": True}
        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{attempt}",
                "namespace": "default",
                "labels": {"podium.dev/job": "count", "podium.dev/trial": name, "podium.dev/attempt": str(attempt)},
                "annotations": {"podium.dev/metrics": json.dumps(reading), "podium.dev/methods": methods},
                "ownerReferences": [owner],
            },
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 8,
                "readinessGates": [{"conditionType": "podium.dev/holds-gpu"}],
                "initContainers": [{"name": "podium-gate", "command": ["/podium/podium-gate", "gate"], **gate}],
                "containers": [
                    {"name": "train", "command": ["/bin/sh", "-c", COUNT], **image, "resources": share if gpus else {}}
                ],
                "volumes": [] if gate_slot else [{"name": "podium-gate", "emptyDir": {}}],
            },
        }
        if cpu is not None:
            main = pod["spec"]["containers"][0]
            main["resources"] = {**share, "requests": {**share["requests"], "cpu": cpu}}
            pod["metadata"]["annotations"][CPU_ANNOTATION] = to_annotation(downsize_cpu([main]))
            requested = {
                key: value for key, value in main["resources"]["requests"].items() if key == "cpu" or gate_slot
            }
            pod["spec"]["initContainers"][0]["resources"] = {**(share if gate_slot else {}), "requests": requested}
        if checkpoints:
            pod["metadata"]["annotations"]["podium.dev/checkpoint"] = "/ckpt"
            folder_on_node = {"path": "/var/lib/checkpoints", "type": "DirectoryOrCreate"}
            pod["spec"]["volumes"].append({"name": "saves", "hostPath": folder_on_node})
            variables = {"PODIUM_CHECKPOINT": "/ckpt", "PODIUM_GRACE_SECONDS": "8"}
            main = pod["spec"]["containers"][0]
            main["command"] = ["/bin/sh", "-c", SAVE]
            main["lifecycle"] = {"preStop": {"exec": {"command": ["/podium/podium-gate", "hook"]}}}
            for container in (main, pod["spec"]["initContainers"][0]):
                container["env"] = [{"name": key, "value": value} for key, value in variables.items()]
                there = {"name": "saves", "mountPath": "/ckpt", "subPath": name}
                container["volumeMounts"] = [*container.get("volumeMounts", []), there]
        if gpus:
            self.trials[name] = uid
        else:
            del pod["spec"]["initContainers"], pod["spec"]["readinessGates"]
        change(pod)
        status = json.dumps({"status": {"nodes": [NODE]}})
        self.cluster.kubectl("patch", "hpt", name, "--subresource=status", "--type=merge", "-p", status)
        self.create(pod, folder)

    def set_run_queue(self, *names: str) -> None:
        """Write the run queue of the GPU as the operator does."""
        self.epoch += 1
        entries = [
            {"namespace": "default", "trial": name, "uid": self.trials[name], "reason": "Test"} for name in names
        ]
        spec = {"epoch": self.epoch, "gpus": [{"uuid": self.uuid, "runQueue": entries}]}
        self.cluster.kubectl("patch", "gpunode", NODE, "--type=merge", "-p", json.dumps({"spec": spec}))

    def frozen(self) -> set[str]:
        """Return the names of the pods with a frozen cgroup, by the kernel's files."""
        pods = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in self.get("pods")["items"]}
        found = set()
        for folder, _, _ in os.walk("/sys/fs/cgroup"):  # unlike glob, it bears folders that vanish meanwhile
            cgroup = Path(folder)
            own = f"/devcluster-{self.cluster.name}/" in folder and "/kubepods/" in folder
            if not own or not cgroup.parent.name.startswith("pod"):
                continue
            v1, v2 = cgroup / "freezer.state", cgroup / "cgroup.freeze"
            try:
                stopped = v1.read_text().strip() != "THAWED" if v1.exists() else v2.read_text().strip() == "1"
            except OSError:
                continue
            if stopped:
                found.add(pods.get(cgroup.parent.name.removeprefix("pod"), cgroup.parent.name))
        return found

    def log_of(self, pod: str, container: str = "train") -> list[str]:
        """Return the lines of a container's log in the kubelet's folder, each with its time."""
        uid = self.get("pod", pod)["metadata"]["uid"]
        folder = self.cluster.logs / NODE / "pods" / f"default_{pod}_{uid}" / container
        return [line for path in sorted(folder.glob("*.log*")) for line in path.read_text().splitlines()]

    def printed(self, name: str, attempt: int = 0) -> list[int]:
        """Return the steps that an attempt of a trial has printed."""
        return [json.loads(line.split(" ", 3)[3])["epoch"] for line in self.log_of(f"{name}-{attempt}")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The cluster with its agent."""
    if os.geteuid() != 0:
        pytest.skip("a node needs root")
    folder = tmp_path_factory.mktemp("agent")
    for part in ("driver", "helper"):
        subprocess.run(
            ["make", "-s", "-C", str(ROOT / "agent" / part), f"OUT={folder / part}"], check=True, timeout=120
        )
    state = folder / "gpu"
    gpu_settings = {"FAKE_GPU_DIR": str(state), "FAKE_GPU_NODE": NODE, "FAKE_GPUS": "1"}
    daemon = subprocess.Popen(
        [str(folder / "driver/podium-fake-gpud"), "run"], env=gpu_settings, stdout=subprocess.DEVNULL
    )
    cluster = Cluster(f"ag-{os.getpid()}", nodes=1)
    node = None
    try:
        cluster.up()
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        cluster.kubectl("wait", "--for=condition=Established", "crd/gpunodes.podium.dev", "--timeout=20s")
        cluster.kubectl("create", "namespace", "podium-system")
        root = cluster.node_root(NODE)
        settings = {
            "PODIUM_KUBECONFIG": cluster.kubeconfig,
            "PODIUM_NODE_NAME": NODE,
            "PODIUM_TRIAL_DIR": root / "var/lib/podium/trial",
            "PODIUM_TRIAL_DIR_ON_HOST": "/var/lib/podium/trial",
            "PODIUM_HELPER": folder / "helper/podium-gate",
            "PODIUM_PLUGIN_DIR": root / "var/lib/kubelet/device-plugins",
            "PODIUM_POD_RESOURCES_SOCKET": root / "var/lib/kubelet/pod-resources/kubelet.sock",
            "PODIUM_PODS_DIR": root / "var/lib/kubelet/pods",
            "PODIUM_POD_LOGS": root / "var/log/pods",
            "PODIUM_HTTP_PORT": "0",
            "PODIUM_LOG_FORMAT": "console",
            "LD_LIBRARY_PATH": folder / "driver",
            "PODIUM_FAKE_DRIVER_STATE": state / "state",
        }
        environment = os.environ | {key: str(value) for key, value in settings.items()}
        node = Node(cluster, environment, folder / "agent.log")
        node.start()
        until(lambda: node.get("gpunodes")["items"], "GPUNode", 120)
        gpus = until(lambda: node.gpunode().get("status", {}).get("gpus"), "a GPU in the status", 60)
        node.uuid = gpus[0]["uuid"]
        yield node
    finally:
        if node is not None:
            node.kill()
            print(node.log.read_text())  # pytest shows it for a failed test
        cluster.down(purge=True)
        daemon.terminate()
        daemon.wait(10)


def allocatable(node: Node) -> str:
    return str(node.get("node", NODE)["status"]["allocatable"].get("podium.dev/gpu"))
