"""A driver of dynamic resources (DRA) for the fake driver's GPUs, and a DeviceClass that serves `nvidia.com/gpu`.

It replaces NVIDIA's device plugin. It needs the CDI specification of NVIDIA's container toolkit (`nvidia`).
"""

from __future__ import annotations

import json

from podium_devcluster.artifacts import nvidia as artifacts
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import project_dir
from podium_devcluster.runtime import nvidia
from podium_devcluster.runtime.node import Node

DRIVER = "gpu.nvidia.com"
_NAMESPACE, _DRIVER = "podium-fake-driver", "daemonset/nvidia-dra-driver"
_MANIFEST = project_dir() / "devcluster" / "manifests" / "nvidia-dra-driver.yaml"


def start_driver(cluster: Cluster) -> None:
    """Start the driver on all nodes, and wait until it has published their GPUs."""
    folder = artifacts.ensure(cluster.cache, cluster.progress, artifacts.DRA_DRIVER).name
    text = _MANIFEST.read_text().replace("PROGRAMS", f"/opt/k8s/{folder}")
    with cluster.progress.step("driver of dynamic resources"):
        cluster.kubectl("apply", "-f", "-", stdin=text)
        rollout = ("rollout", "status", _DRIVER, f"--timeout={nvidia.READY_SECONDS:g}s")
        cluster.kubectl("-n", _NAMESPACE, *rollout, timeout=130)
        for node in cluster.nodes:
            nvidia.until(lambda node=node: len(published(cluster, node)) == nvidia.gpus(node), f"{node.name} publishes")  # type: ignore[misc]


def stop_driver(cluster: Cluster) -> None:
    """Remove the driver, its DeviceClass and what it has published, if there is one."""
    cluster.kubectl("delete", "deviceclass", DRIVER, "--ignore-not-found", timeout=60)
    cluster.kubectl("-n", _NAMESPACE, "delete", _DRIVER, "--ignore-not-found", "--wait=true", timeout=60)
    cluster.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={DRIVER}", timeout=60)


def published(cluster: Cluster, node: Node) -> dict[str, str]:
    """Return the UUIDs of the GPUs that the driver publishes for a node, by the name of the device."""
    fields = f"--field-selector=spec.driver={DRIVER},spec.nodeName={node.name}"
    found = json.loads(cluster.kubectl("get", "resourceslices", fields, "-o", "json"))["items"]
    return {
        device["name"]: device["attributes"]["uuid"]["string"] for one in found for device in one["spec"]["devices"]
    }
