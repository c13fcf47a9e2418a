"""NVIDIA's device plugin and container toolkit, the real ones, over the fake driver: plain pods, and trials of Podium.

The file has a one-node cluster of its own, because the toolkit changes how every container of a node gets its GPUs.
Each test continues from the state of the previous one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from script_modules import load

from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import nvidia

nvidia_cluster = load(Path(__file__).with_name("nvidia_cluster.py"))
pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
NODE, STATE = nvidia_cluster.NODE, nvidia_cluster.STATE
GPUS, TRIALS = 2, 4
SCRIPT = "/scripts/devices.py"
IMAGE = "localhost/podium-digits:dev"
ALL = {"nvidia0": [195, 0], "nvidia1": [195, 1], "nvidiactl": [195, 255]}


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster, and the requests of the tests."""

    site: Any
    uuids: tuple[str, ...]  # of the GPUs, by index

    def pod(self, name: str, gpu: bool = True, **spec: Any) -> None:
        """Create a pod that prints its devices and works for a second; CDI does not mount the fake driver's state."""
        container: dict[str, Any] = {
            "name": "main",
            "image": IMAGE,
            "command": ["python3", SCRIPT, "10", "0.1"],
            "volumeMounts": [
                {"name": "scripts", "mountPath": "/scripts"},
                {"name": "state", "mountPath": STATE},
            ],
        }
        container |= {"resources": {"limits": {nvidia.RESOURCE: "1"}}} if gpu else spec.pop("container", {})
        volumes = [
            {"name": "scripts", "configMap": {"name": "device-scripts"}},
            {"name": "state", "hostPath": {"path": STATE, "type": "Directory"}},
        ]
        body = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "volumes": volumes, **spec}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}}
        self.site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest | {"spec": body | {"containers": [container]}}))

    def seen(self, name: str, container: str = "main", seconds: float = 240) -> dict[str, Any]:
        """Wait until a pod has ended well, and return the devices that it printed."""

        def ended() -> dict[str, Any] | None:
            pod: dict[str, Any] = self.site.get("pod", name)
            assert pod["status"]["phase"] != "Failed", pod["status"]
            return pod if pod["status"]["phase"] == "Succeeded" else None

        pod = self.site.until(f"{name} ends", ended, seconds)
        return devices(self.site.log_of(pod, container))

    def check_one_gpu(self, seen: dict[str, Any]) -> str:
        """Check that a container has exactly one GPU, the same one for the kernel and for CUDA; return its UUID."""
        nodes = dict(seen["nodes"])
        assert nodes.pop("nvidiactl") == ALL["nvidiactl"]
        ((name, numbers),) = nodes.items()
        assert numbers == ALL[name]
        uuid = self.uuids[numbers[1]]
        assert seen["cuda"] == [hexadecimal(uuid)]
        assert len(seen["libraries"]) == 1
        assert "podium-fake-driver" not in seen["libraries"][0], "the driver comes from the toolkit"
        return uuid

    def worked_on(self, pod: str, container: str = "main") -> set[str]:
        """Return the GPUs on which a pod's container worked, by the fake driver's record."""
        statuses = self.site.get("pod", pod)["status"]["containerStatuses"]
        (identifier,) = [one["containerID"].rpartition("/")[2] for one in statuses if one["name"] == container]
        record = self.site.evidence.work_of(nvidia_cluster.work_log(self.site.cluster))
        return {work.gpu for work in record if work.container == identifier}

    def delete(self, *pods: str) -> None:
        self.site.kubectl("delete", "pod", *pods, "--timeout=60s", timeout=70)


def devices(log: str) -> dict[str, Any]:
    """Return the devices that scripts/devices.py printed."""
    lines = [line.split(" ", 3)[3] for line in log.splitlines()]
    (found,) = [json.loads(line)["devices"] for line in lines if line.startswith('{"devices"')]
    return dict(found)


def hexadecimal(uuid: str) -> str:
    return uuid.removeprefix("GPU-").replace("-", "")


@pytest.fixture(scope="module")
def stage(site_of: Callable[[Cluster], Any]) -> Iterator[Stage]:
    if os.geteuid() != 0:
        pytest.skip("the cluster needs root (network namespaces, cgroups, mounts)")
    with nvidia_cluster.cluster_with_toolkit("nvidia", GPUS) as cluster:
        cluster.kubectl("create", "configmap", "all-gpus", "--from-literal=NVIDIA_VISIBLE_DEVICES=all")
        gpud = f"{STATE}/bin/podium-fake-gpud"
        uuids = tuple(cluster.node_exec(NODE, [gpud, "uuid", NODE, str(gpu)]).strip() for gpu in range(GPUS))
        yield Stage(site_of(cluster), uuids)


@pytest.mark.parametrize("strategy", ["envvar", "cdi-cri"])
def test_nvidias_plugin_gives_each_pod_a_gpu_of_its_own(stage: Stage, strategy: nvidia.Strategy) -> None:
    """With two GPUs the plugin asks NVML for topology and links, of which a missing function would end it."""
    nvidia.start_plugin(stage.site.cluster, strategy)
    names = [f"{strategy}-{number}" for number in range(GPUS)]
    for name in names:
        stage.pod(name, **({"runtimeClassName": "nvidia"} if strategy == "envvar" else {}))
    found = [stage.check_one_gpu(stage.seen(name)) for name in names]
    assert sorted(found) == sorted(stage.uuids)
    assert [stage.worked_on(name) for name in names] == [{uuid} for uuid in found]
    stage.delete(*names)


def test_feature_discovery_labels_the_gpus(stage: Stage) -> None:
    labels = nvidia.features(stage.site.cluster, NODE)
    assert labels["nvidia.com/gpu.count"] == str(GPUS)
    assert labels["nvidia.com/gpu.product"] == "Podium-Fake-GPU-24GB"
    assert labels["nvidia.com/gpu.memory"] == "24576"
    assert labels["nvidia.com/mig.capable"] == "false"


def test_a_critical_error_makes_a_gpu_of_the_plugin_unhealthy(stage: Stage) -> None:
    cluster = stage.site.cluster
    cluster.node_exec(NODE, [f"{STATE}/bin/podium-fake-gpud", "set", "1", "xid=79"])
    stage.site.until("one GPU is left", lambda: nvidia.announced(cluster, cluster.node(NODE)) == GPUS - 1, 60)
    cluster.node_exec(NODE, [f"{STATE}/bin/podium-fake-gpud", "set", "all", "health=ok"])
    nvidia.stop_plugin(cluster)


def test_the_runtime_follows_the_environment_of_a_pod_without_a_gpu(stage: Stage) -> None:
    """Podium cannot change that for plain pods. It shows that the trials of the next test are really protected."""
    given = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    stage.pod("greedy", gpu=False, runtimeClassName="nvidia", container=given)
    assert stage.seen("greedy")["nodes"] == ALL
    stage.delete("greedy")


def test_a_trial_has_exactly_its_gpu_whatever_its_environment_says(stage: Stage) -> None:
    site = stage.site
    chart = [site.place.tool("helm"), "install", "podium", str(ROOT / "charts/podium"), *nvidia.CHART_VALUES]
    options = ["-n", "podium-system", "--create-namespace", "--wait", "--timeout=240s"]
    site.demo.call(site.place, [*chart, *options], 260, quiet=True)
    site.until("the agent reports both GPUs", lambda: healthy(site) == GPUS, 120)

    manifest = site.example("exact")
    manifest["spec"] |= {"trials": {"max": TRIALS, "parallel": TRIALS, "maxSteps": 10}}
    del manifest["spec"]["checkpoint"]
    pod = manifest["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "scripts", "configMap": {"name": "device-scripts"}}]
    (container,) = pod["containers"]
    container["command"] = ["python3", SCRIPT, "10", "0.1"]
    container["volumeMounts"] = [{"name": "scripts", "mountPath": "/scripts"}]
    container["envFrom"] = [{"configMapRef": {"name": "all-gpus"}}]  # stronger than what a device plugin sets
    site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    site.until("the search ends", lambda: site.job("exact").get("status", {}).get("phase") == "Succeeded", 600)

    pods = {one["metadata"]["name"]: one for one in site.objects("pods", "-l", "podium.dev/job=exact")}
    assert len(pods) == TRIALS
    used = set()
    for name, one in pods.items():
        assert one["spec"]["runtimeClassName"] == "nvidia"
        seen = devices(site.log_of(one, "train"))
        uuid = stage.check_one_gpu(seen)
        assert seen["variable"] == "void"
        assert stage.worked_on(name, "train") == {uuid}
        used.add(uuid)
    assert used == set(stage.uuids)
    assert site.evidence.overlaps(site.evidence.work_of(nvidia_cluster.work_log(site.cluster))) == []


def healthy(site: Any) -> int:
    gpus = [gpu for node in site.objects("gpunodes") for gpu in node.get("status", {}).get("gpus", [])]
    return sum(gpu["health"] == "Healthy" for gpu in gpus)
