"""The agent on a real node: kubelet, containerd, cgroups, device plugin, gate, logs. Read from outside of it.

The agent runs as a process of this machine with its paths pointed into the node, so that it can be killed and started
like the real one; the GPU is the fake driver's. The tests are one story and run in their order.
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
from pathlib import Path
from typing import Any

import pytest

from podium_devcluster.cluster import Cluster

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
IMAGE = "localhost/busybox:1"
NODE = "node-1"
COUNT = """trap 'exit 0' TERM; i=0
while :; do i=$((i+1)); echo "{\\"epoch\\": $i, \\"acc\\": 0.$i}"; sleep 0.05; done"""

# saves after its first step and whenever it is asked; goes on from its save
SAVE = """trap 'exit 0' TERM; cd /ckpt; i=0
[ -f podium-save.json ] && i=$(sed 's/[^0-9]*\\([0-9]*\\).*/\\1/' podium-save.json)
save() { echo "{\\"step\\": $i, \\"onRequest\\": true}" > new; rm -f podium-save-request; mv new podium-save.json; }
while :; do i=$((i+1)); echo "{\\"epoch\\": $i, \\"acc\\": 0.$i}"
if [ $i = 1 ] || [ -e podium-save-request ]; then save; fi; sleep 0.05; done"""


def until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """Waits for a condition; its answer, or a failure that says what did not come."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.02)


@dataclass
class Node:
    """A one-node cluster with an agent beside it."""

    cluster: Cluster
    environment: dict[str, str]
    log: Path
    agent: subprocess.Popen[bytes] | None = None
    epoch: int = 0
    uuid: str = ""
    log_before: int = 0
    trials: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        with self.log.open("ab") as file:
            self.log_before = file.tell()
            self.agent = subprocess.Popen(
                [sys.executable, "-m", "podium_agent.main"], env=self.environment, stderr=file
            )

    def until_it_serves(self) -> None:
        """Until then a kubelet fails the pods that the scheduler, who knows no better, gives it."""
        until(lambda: b"announcing" in self.log.read_bytes()[self.log_before :], "the new agent's device plugin")
        until(lambda: allocatable(self) == "4", "4 shares")

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.agent.send_signal(number)
            self.agent.wait(20)

    def get(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.cluster.kubectl("get", *words, "-o", "json"))
        return answer

    def gpunode(self) -> dict[str, Any]:
        return self.get("gpunode", NODE)

    def states(self) -> dict[str, str]:
        return {one["trial"]: one["state"] for one in self.gpunode()["status"]["gpus"][0].get("trials", [])}

    def create(self, manifest: dict[str, Any], folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps(manifest))
        self.cluster.kubectl("apply", "-f", str(path))

    def add_trial(self, number: int, folder: Path, gpus: int = 1, *, saves: bool = False, attempt: int = 0) -> None:
        """Without a GPU the pod is as the operator makes it then: no share, no gate, and in no order. One that saves
        does so in a folder of the node, and has the hook.
        """
        name = f"count-{number}"
        spec = {"job": "count", "number": number, "parameters": {"lr": 0.1}}
        base = {"apiVersion": "podium.dev/v1alpha1", "kind": "HyperParamTrial"}
        self.create({**base, "metadata": {"name": name, "namespace": "default"}, "spec": spec}, folder)
        uid = self.get("hpt", name)["metadata"]["uid"]
        reading = {"metric": "acc", "direction": "maximize", "stepKey": "epoch", "format": "json", "container": "train"}
        share = {"requests": {"podium.dev/gpu": "1"}, "limits": {"podium.dev/gpu": "1"}}
        common = {"image": IMAGE, "imagePullPolicy": "Never", "resources": share if gpus else {}}
        owner = {**base, "name": name, "uid": uid, "controller": True}
        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{attempt}",
                "namespace": "default",
                "labels": {"podium.dev/job": "count", "podium.dev/trial": name, "podium.dev/attempt": str(attempt)},
                "annotations": {"podium.dev/reading": json.dumps(reading)},
                "ownerReferences": [owner],
            },
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 8,
                "readinessGates": [{"conditionType": "podium.dev/holds-gpu"}],
                "initContainers": [{"name": "podium-gate", "command": ["/podium/podium-gate", "gate"], **common}],
                "containers": [{"name": "train", "command": ["/bin/sh", "-c", COUNT], **common}],
            },
        }
        if saves:
            pod["metadata"]["annotations"]["podium.dev/checkpoint"] = "/ckpt"
            place = {"path": "/var/lib/checkpoints", "type": "DirectoryOrCreate"}
            pod["spec"]["volumes"] = [{"name": "saves", "hostPath": place}]
            told = {"PODIUM_CHECKPOINT": "/ckpt", "PODIUM_GRACE_SECONDS": "8"}
            main = pod["spec"]["containers"][0]
            main["command"] = ["/bin/sh", "-c", SAVE]
            main["lifecycle"] = {"preStop": {"exec": {"command": ["/podium/podium-gate", "hook"]}}}
            for container in (main, pod["spec"]["initContainers"][0]):
                container["env"] = [{"name": key, "value": value} for key, value in told.items()]
                container["volumeMounts"] = [{"name": "saves", "mountPath": "/ckpt", "subPath": name}]
        if gpus:
            self.trials[name] = uid
        else:
            del pod["spec"]["initContainers"], pod["spec"]["readinessGates"]
        self.create(pod, folder)

    def order(self, *names: str) -> None:
        self.epoch += 1
        places = [{"namespace": "default", "trial": name, "uid": self.trials[name], "reason": "Test"} for name in names]
        spec = {"epoch": self.epoch, "gpus": [{"uuid": self.uuid, "order": places}]}
        self.cluster.kubectl("patch", "gpunode", NODE, "--type=merge", "-p", json.dumps({"spec": spec}))

    def frozen(self) -> set[str]:
        """Names of the pods of which a cgroup is frozen, as the kernel says."""
        pods = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in self.get("pods")["items"]}
        found = set()
        for place in Path("/sys/fs/cgroup").glob(f"**/devcluster-{self.cluster.name}/**/kubepods/**/pod*/*/"):
            v1, v2 = place / "freezer.state", place / "cgroup.freeze"
            try:
                stopped = v1.read_text().strip() != "THAWED" if v1.exists() else v2.read_text().strip() == "1"
            except OSError:
                continue
            if stopped:
                found.add(pods.get(place.parent.name.removeprefix("pod"), place.parent.name))
        return found

    def printed(self, name: str, attempt: int = 0) -> list[int]:
        """The steps in the container's own log, as the kubelet's folder has them."""
        pod = f"{name}-{attempt}"
        uid = self.get("pod", pod)["metadata"]["uid"]
        folder = self.cluster.logs / NODE / "pods" / f"default_{pod}_{uid}" / "train"
        lines = [line for path in sorted(folder.glob("*.log*")) for line in path.read_text().splitlines()]
        return [json.loads(line.split(" ", 3)[3])["epoch"] for line in lines]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
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
            "PODIUM_SHARE_DIR": root / "var/lib/podium/share",
            "PODIUM_SHARE_DIR_ON_HOST": "/var/lib/podium/share",
            "PODIUM_HELPER": folder / "helper/podium-gate",
            "PODIUM_PLUGIN_DIR": root / "var/lib/kubelet/device-plugins",
            "PODIUM_POD_RESOURCES_SOCKET": root / "var/lib/kubelet/pod-resources/kubelet.sock",
            "PODIUM_POD_LOGS": root / "var/log/pods",
            "PODIUM_HTTP_PORT": "0",
            "PODIUM_LOG_FORMAT": "console",
            "LD_LIBRARY_PATH": folder / "driver",
            "PODIUM_FAKE_DRIVER_STATE": state / "state",
        }
        environment = os.environ | {key: str(value) for key, value in settings.items()}
        node = Node(cluster, environment, folder / "agent.log")
        node.start()
        until(lambda: node.cluster.kubectl("get", "gpunode", "-o", "name"), "GPUNode", 120)
        gpus = until(lambda: node.gpunode().get("status", {}).get("gpus"), "a GPU in the status", 60)
        node.uuid = gpus[0]["uuid"]
        yield node
    finally:
        if node is not None:
            node.kill()
            print(node.log.read_text())  # pytest shows it where a test has failed
        cluster.down(purge=True)
        daemon.terminate()
        daemon.wait(10)


def allocatable(node: Node) -> str:
    return str(node.get("node", NODE)["status"]["allocatable"].get("podium.dev/gpu"))


def test_the_kubelet_counts_the_shares(node: Node) -> None:
    until(lambda: allocatable(node) == "4", "4 shares", 60)


def test_gates_hold_until_the_order_names_a_trial(node: Node, tmp_path: Path) -> None:
    for number in range(3):
        node.add_trial(number, tmp_path)
    until(lambda: node.states() == dict.fromkeys(node.trials, "Gated"), "three gated trials", 60)

    def at_its_gate() -> bool:
        """Gated is also what a pod is called before its gate runs; until then there is no log to ask for."""
        gates = node.get("pod", "count-0-0")["status"].get("initContainerStatuses", [])
        return any("running" in gate["state"] for gate in gates)

    until(at_its_gate, "the gate of count-0")
    until(
        lambda: "NoOrder" in node.cluster.kubectl("logs", "count-0-0", "-c", "podium-gate"),
        "the reason in the gate's log",
    )
    node.order("count-0", "count-1", "count-2")
    until(lambda: node.states()["count-0"] == "Running", "the first at work")
    assert [node.states()[name] for name in ("count-1", "count-2")] == ["Gated", "Gated"]
    until(lambda: len(node.printed("count-0")) > 5, "steps")


def test_a_trial_without_a_gpu_only_has_its_log_read(node: Node, tmp_path: Path) -> None:
    """It stays for all that follows: a pod that will never have a share must be in nobody's way."""
    node.add_trial(9, tmp_path, gpus=0)
    until(lambda: node.get("hpt", "count-9").get("status", {}).get("lastStep", 0) > 5, "its curve")
    assert "count-9" not in node.states()
    kinds = {one["type"] for one in node.get("pod", "count-9-0")["status"]["conditions"]}
    assert not any(kind.startswith("podium.dev/") for kind in kinds)


def test_a_new_order_hands_over_and_loses_no_step(node: Node) -> None:
    node.order("count-1", "count-0", "count-2")
    until(lambda: node.frozen() == {"count-0-0"}, "the old holder frozen")
    until(lambda: node.states()["count-1"] == "Running", "the new one at work")
    stopped = node.printed("count-0")[-1]
    for _ in range(4):
        node.order("count-0", "count-1", "count-2")
        until(lambda: node.frozen() == {"count-1-0"}, "hand-over")
        node.order("count-1", "count-0", "count-2")
        until(lambda: node.frozen() == {"count-0-0"}, "hand-over back")
    steps = node.printed("count-0")
    assert steps == list(range(1, len(steps) + 1))
    assert steps[-1] > stopped

    def shown() -> dict[str, str]:
        return {one["type"]: one["status"] for one in node.get("pod", "count-0-0")["status"]["conditions"]}

    until(lambda: shown()["podium.dev/Suspended"] == "True", "the condition")
    assert shown()["podium.dev/holds-gpu"] == "False"


def test_a_killed_agent_goes_on_where_it_was(node: Node) -> None:
    # a status is written every two seconds at most: what a killed agent had not written yet is not known to the next
    until(lambda: len(node.get("hpt", "count-0").get("status", {}).get("holds", [])) >= 5, "five turns in the status")
    node.kill()
    before = len(node.printed("count-1"))
    until(lambda: len(node.printed("count-1")) > before + 5, "the trial works on without an agent")
    assert node.frozen() == {"count-0-0"}
    node.start()
    node.order("count-0", "count-1", "count-2")
    until(lambda: node.frozen() == {"count-1-0"}, "the new agent follows the order")
    steps = node.printed("count-1")

    def caught_up() -> bool:
        status = node.get("hpt", "count-1").get("status", {})
        return status.get("lastStep") == steps[-1] and status["reader"]["lines"] == len(steps)

    until(caught_up, "every line read exactly once")
    points = [point["step"] for point in node.get("hpt", "count-1")["status"]["curve"]["points"]]
    assert points == sorted(set(points))
    assert points[0] == 1


def test_the_plugin_comes_back_after_a_kubelet_restart(node: Node) -> None:
    node.cluster.restart("kubelet", NODE)
    until(lambda: allocatable(node) == "4", "4 shares again", 60)
    # the new kubelet admits what runs already anew, and fails it where the plugin comes too late
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in node.get("pods")["items"]}
    assert phases == {"count-0-0": "Running", "count-1-0": "Running", "count-2-0": "Pending", "count-9-0": "Running"}
    assert node.frozen() == {"count-1-0"}


def test_when_the_holder_ends_the_next_goes_on_at_once(node: Node) -> None:
    before = len(node.printed("count-1"))
    node.cluster.kubectl("delete", "pod", "count-0-0", "--wait=false")
    until(lambda: len(node.printed("count-1")) > before, "the next one works")
    holds = until(lambda: node.get("hpt", "count-0")["status"]["holds"], "holds")
    assert len(holds) >= 5
    until(lambda: all("end" in hold for hold in node.get("hpt", "count-0")["status"]["holds"]), "all holds ended")


def test_a_suspended_trial_that_is_deleted_hears_its_sigterm(node: Node) -> None:
    node.order("count-2", "count-1")
    until(lambda: node.states().get("count-2") == "Running", "count-2 at work")
    begin = time.monotonic()
    node.cluster.kubectl("delete", "pod", "count-1-0", "--wait=true")
    assert time.monotonic() - begin < 7, "it was left to the SIGKILL at the end of its grace period"
    until(lambda: node.frozen() == set(), "the holder goes on")


def test_a_deleted_pod_saves_first_and_the_next_one_counts_what_was_lost(node: Node, tmp_path: Path) -> None:
    """Hook, marker, the agent's look at it after the end, the gate's word, and the count: nothing of it is told."""

    def status() -> dict[str, Any]:
        return dict(node.get("hpt", "count-7").get("status", {}))

    node.add_trial(7, tmp_path, saves=True)
    node.order("count-7", "count-2")
    until(lambda: status().get("saved", {}).get("step") == 1, "its first save")
    assert status()["saved"]["node"] == NODE
    until(lambda: status().get("lastStep", 0) > 20, "steps")
    node.cluster.kubectl("delete", "pod", "count-7-0", "--wait=true")
    until(lambda: all("end" in hold for hold in status()["holds"]), "the end of its turn")
    before = status()
    assert before["saved"]["step"] > 20, "saved because it was asked: by itself it does so once"
    lost = before["lastStep"] - before["saved"]["step"]
    node.order("count-2")
    node.add_trial(7, tmp_path, saves=True, attempt=1)
    until(lambda: node.states().get("count-7") == "Gated", "the next one at its gate")
    assert status()["reader"] == before["reader"], "nothing is counted before it has begun"
    node.order("count-7", "count-2")
    until(lambda: status().get("reader", {}).get("podUid") != before["reader"]["podUid"], "the new pod's record")
    steps = until(lambda: node.printed("count-7", attempt=1), "its first steps")
    assert steps[0] == before["saved"]["step"] + 1
    losses = status()["losses"]
    assert (losses["steps"], losses["count"]) == (lost, int(lost > 0))
    assert 0.0 <= losses["gpuSeconds"] < before["gpuSeconds"], "a marker is seen at most half a second late"
    node.kill()
    node.start()
    node.until_it_serves()
    until(lambda: status()["lastStep"] > before["lastStep"] + 20, "it goes on, under another agent")
    assert status()["losses"] == losses
    node.cluster.kubectl("delete", "pod", "count-7-1", "--wait=true")


def test_a_pod_deleted_by_force_keeps_its_gpu_until_its_processes_have_ended(node: Node, tmp_path: Path) -> None:
    """The API forgets it at once; with the kubelet away nobody ends it, and only the kernel knows. A new agent too."""

    def settled() -> bool:
        return int(node.gpunode()["status"].get("observedEpoch", 0)) == node.epoch

    node.add_trial(8, tmp_path)
    node.order("count-2", "count-8")
    until(lambda: node.states() == {"count-2": "Running", "count-8": "Gated"}, "one at work, one at its gate")
    node.cluster.kill("kubelet", NODE)
    node.cluster.kubectl("delete", "pod", "count-2-0", "--force", "--grace-period=0", "--wait=true")
    for new_agent in (False, True):
        if new_agent:
            node.kill()
            node.start()
        node.order("count-8")
        until(settled, "the order heard")
        assert node.states() == {"count-2": "Running", "count-8": "Gated"}
    node.cluster.start("kubelet", NODE)
    until(lambda: "count-2" not in node.states(), "the orphan ended", 120)
    # or the new kubelet gave count-8 up, where the plugin came too late (UnexpectedAdmissionError)
    until(lambda: node.states() in ({"count-8": "Running"}, {}), "the next at work")
    node.until_it_serves()
    node.cluster.kubectl("delete", "pod", "count-8-0", "--wait=true")


def test_a_second_agent_waits_for_the_first(node: Node) -> None:
    with (node.log.parent / "second.log").open("wb") as file:
        second = subprocess.Popen([sys.executable, "-m", "podium_agent.main"], env=node.environment, stderr=file)
    try:
        until(lambda: "OtherAgent" in (node.log.parent / "second.log").read_text(), "the reason in its log")
        node.kill()
        until(lambda: "following epoch" in (node.log.parent / "second.log").read_text(), "it takes over")
    finally:
        second.kill()
        second.wait(20)
    node.start()
    node.until_it_serves()


def test_released_means_nothing_is_frozen(node: Node, tmp_path: Path) -> None:
    for number in (3, 4):
        node.add_trial(number, tmp_path)
    until(lambda: [node.states().get(f"count-{n}") for n in (3, 4)] == ["Gated", "Gated"], "both at their gates")
    node.order("count-4", "count-3")
    until(lambda: node.states()["count-4"] == "Running", "count-4 at work")
    node.order("count-3", "count-4")
    until(lambda: node.frozen() == {"count-4-0"}, "count-4 suspended")
    node.cluster.kubectl("patch", "gpunode", NODE, "--type=merge", "-p", '{"spec": {"released": true}}')
    until(lambda: node.frozen() == set(), "all thawed")
    until(lambda: node.states() == {"count-3": "Running", "count-4": "Running"}, "both said to run")
