"""NVIDIA's parts on the nodes of a cluster: container toolkit, device plugin or DRA driver, and feature discovery.

They run over the fake driver, which must be on the nodes already (`install_fake_driver`). In each node,
`/run/nvidia/driver` then has what the driver container of NVIDIA's GPU Operator leaves there, and `/run/cdi` a CDI
specification of the node's GPUs. The driver of dynamic resources (DRA) replaces the device plugin, and needs that
specification. It is the dev cluster's own: its DeviceClass serves `nvidia.com/gpu`.

The dev cluster and kind have the toolkit and the device plugin from here: both are a `GpuCluster`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

from podium_devcluster.artifacts import nvidia
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import Cache, project_dir
from podium_devcluster.progress import Progress
from podium_devcluster.runtime import waiting

Strategy = Literal["cdi-cri", "envvar"]
RESOURCE = "nvidia.com/gpu"
DRIVER_LIBRARIES = "/run/nvidia/driver/usr/lib/x86_64-linux-gnu"
SPECIFICATION = "/run/cdi/nvidia.yaml"
DRA_DRIVER = "gpu.nvidia.com"  # also the name of its DeviceClass
_NAMESPACE, _PLUGIN = "podium-fake-driver", "daemonset/nvidia-device-plugin"
_DRA_DAEMON = "daemonset/nvidia-dra-driver"
_MANIFESTS = project_dir() / "devcluster" / "manifests"
READY_SECONDS = 120.0
# arguments of helm: the agent and the trials get their GPUs from the toolkit, and nothing from the fake driver itself
CHART_VALUES = (
    *("-f", str(project_dir() / "examples" / "demo-values.yaml"), "--set=agent.runtimeClassName=nvidia"),
    *("--set=trials.runtimeClassName=nvidia", "--set=agent.driver.libraryPath=", "--set=agent.trialEnv=null"),
)


class GpuNode(Protocol):
    """A node in which programs can be run."""

    @property
    def name(self) -> str:
        """The node's name."""

    def execute(self, argv: Sequence[str], timeout: float = 30.0, stdin: str | None = None) -> str:
        """Run a program in the node and return its standard output."""


class GpuCluster(Protocol):
    """What NVIDIA's parts need of a cluster."""

    cache: Cache
    progress: Progress

    @property
    def nodes(self) -> Sequence[GpuNode]:
        """The nodes of the running cluster."""

    def provide(self, folder: Path) -> str:
        """Make a folder of the cache's `bin` available in all nodes, and return its path there."""

    def restart(self, component: str, node: str | None = None) -> None:
        """Restart a program of a node, and wait until it answers."""

    def kubectl(self, *arguments: str, timeout: float = 30.0, stdin: str | None = None) -> str:
        """Run kubectl and return its standard output."""


def install_fake_driver(cluster: GpuCluster, per_node: int = 1) -> None:
    """Install the fake driver, with this many GPUs on each node."""
    manifest = (_MANIFESTS / "fake-driver.yaml").read_text()
    many = manifest.replace('{name: FAKE_GPUS, value: "1"}', f'{{name: FAKE_GPUS, value: "{per_node}"}}')
    cluster.kubectl("apply", "-f", "-", stdin=many)
    rollout = ("rollout", "status", "daemonset/podium-fake-driver", "--timeout=120s")
    cluster.kubectl("-n", _NAMESPACE, *rollout, timeout=130)


def programs(cluster: GpuCluster, which: Sequence[nvidia.NvidiaProgram] = nvidia.PROGRAMS) -> str:
    """Return the folder of NVIDIA's programs as nodes see it; build the programs if they are missing."""
    return cluster.provide(nvidia.ensure(cluster.cache, cluster.progress, which))


def install_toolkit(cluster: GpuCluster) -> None:
    """Install the driver root, the CDI specification, and the RuntimeClass `nvidia` on all nodes."""
    folder = programs(cluster)
    script = Path(__file__).with_name("nvidia_node.sh").read_text()
    version = driver_version((project_dir() / "agent" / "driver" / "state.h").read_text())
    with cluster.progress.step("NVIDIA's container toolkit"):
        for node in cluster.nodes:
            node.execute(["/bin/sh", "-s", folder, version], timeout=120, stdin=script)
            cluster.restart("containerd", node.name)
        cluster.kubectl("apply", "-f", str(_MANIFESTS / "nvidia-runtime-class.yaml"))


def start_plugin(cluster: GpuCluster, strategy: Strategy = "cdi-cri") -> None:
    """Start the device plugin on all nodes, and wait until it has announced their GPUs."""
    text = (_MANIFESTS / "nvidia-device-plugin.yaml").read_text().replace("PROGRAMS", programs(cluster))
    with cluster.progress.step(f"NVIDIA's device plugin ({strategy})"):
        cluster.kubectl("apply", "-f", "-", stdin=text.replace("value: cdi-cri", f"value: {strategy}"))
        cluster.kubectl("-n", _NAMESPACE, "rollout", "status", _PLUGIN, f"--timeout={READY_SECONDS:g}s", timeout=130)
        for node in cluster.nodes:
            _until(lambda node=node: announced(cluster, node) == gpus(node), f"{node.name} announces all GPUs")  # type: ignore[misc]


def stop_plugin(cluster: GpuCluster) -> None:
    """Remove the device plugin, and wait until the nodes have no GPU of it."""
    cluster.kubectl("-n", _NAMESPACE, "delete", _PLUGIN, "--ignore-not-found", "--wait=true", timeout=60)
    for node in cluster.nodes:
        _until(lambda node=node: announced(cluster, node) == 0, f"{node.name} announces no GPU")  # type: ignore[misc]


def start_dra_driver(cluster: Cluster) -> None:
    """Start the driver of dynamic resources on all nodes, and wait until it has published their GPUs."""
    folder = programs(cluster, nvidia.DRA_DRIVER)
    text = (_MANIFESTS / "nvidia-dra-driver.yaml").read_text().replace("PROGRAMS", folder)
    with cluster.progress.step("driver of dynamic resources"):
        cluster.kubectl("apply", "-f", "-", stdin=text)
        rollout = ("rollout", "status", _DRA_DAEMON, f"--timeout={READY_SECONDS:g}s")
        cluster.kubectl("-n", _NAMESPACE, *rollout, timeout=130)
        for node in cluster.nodes:
            _until(lambda node=node: len(published(cluster, node)) == gpus(node), f"{node.name} publishes all GPUs")  # type: ignore[misc]


def stop_dra_driver(cluster: Cluster) -> None:
    """Remove the driver of dynamic resources, its DeviceClass and what it has published, if there is one."""
    cluster.kubectl("delete", "deviceclass", DRA_DRIVER, "--ignore-not-found", timeout=60)
    cluster.kubectl("-n", _NAMESPACE, "delete", _DRA_DAEMON, "--ignore-not-found", "--wait=true", timeout=60)
    cluster.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={DRA_DRIVER}", timeout=60)


def published(cluster: Cluster, node: GpuNode) -> dict[str, str]:
    """Return the UUIDs of the GPUs that the driver publishes for a node, by the name of the device."""
    fields = f"--field-selector=spec.driver={DRA_DRIVER},spec.nodeName={node.name}"
    found = json.loads(cluster.kubectl("get", "resourceslices", fields, "-o", "json"))["items"]
    return {
        device["name"]: device["attributes"]["uuid"]["string"] for one in found for device in one["spec"]["devices"]
    }


def features(cluster: Cluster, node: str) -> dict[str, str]:
    """Return the labels that GPU feature discovery finds for a node."""
    folder = programs(cluster, nvidia.FEATURE_DISCOVERY)
    argv = [
        "env", f"KUBECONFIG=/pki/{node}.kubeconfig", f"NODE_NAME={node}", f"LD_LIBRARY_PATH={DRIVER_LIBRARIES}",
        f"{folder}/gpu-feature-discovery", "--oneshot", "--use-node-feature-api=false",
        "--output-file=/tmp/gpu-features",
    ]  # fmt: skip
    cluster.node_exec(node, argv, timeout=60)
    lines = cluster.node_exec(node, ["cat", "/tmp/gpu-features"]).splitlines()
    return dict(line.split("=", 1) for line in lines)


def announced(cluster: GpuCluster, node: GpuNode) -> int:
    """Return the number of GPUs that the device plugin announces on a node."""
    found = json.loads(cluster.kubectl("get", "node", node.name, "-o", "json"))["status"]["allocatable"]
    return int(found.get(RESOURCE, "0"))


def gpus(node: GpuNode) -> int:
    """Return the number of the node's GPUs."""
    listed = node.execute(["/var/lib/podium-fake-driver/bin/podium-fake-gpud", "show"]).splitlines()
    return sum(line[:1].isdigit() for line in listed)


def driver_version(header: str) -> str:
    """Return the version that the fake driver reports, from its header. Pure."""
    found = re.search(r'^#define DRIVER_VERSION "([0-9.]+)"$', header, re.M)
    if found is None:
        raise ValueError("agent/driver/state.h defines no DRIVER_VERSION; restore it from git")
    return found[1]


def _until(ready: Callable[[], bool], what: str) -> None:
    waiting.until(ready, what, READY_SECONDS, pause=0.2)
