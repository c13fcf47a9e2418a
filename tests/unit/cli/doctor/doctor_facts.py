"""Facts of a healthy cluster with one GPU node, and functions that change parts of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from podium import __version__
from podium_cli.doctor.diagnosis import diagnose
from podium_cli.doctor.facts import (
    AGENT,
    OPERATOR,
    SCHEDULER,
    ClusterFacts,
    ComponentPod,
    CrdFacts,
    KubeletConfig,
    NodeFacts,
    Unread,
    Workload,
)
from podium_cli.doctor.installation_checks import EXPECTED_CRDS
from podium_core.schema.gpunode import GPUNode

IMAGE = "registry.example/podium:0.1.0"
CONTAINERS = {
    OPERATOR: {"operator": IMAGE},
    SCHEDULER: {"kube-scheduler": "registry.example/kube-scheduler:v1.36.3", "extender": IMAGE},
    AGENT: {"agent": IMAGE},
}
FORBIDDEN = Unread("you may not read it: forbidden")
UNREADABLE = (
    *("server_version", "nodes", "workloads", "pods", "crds", "gpu_nodes", "heartbeats", "priority_classes"),
    *("runtime_classes", "namespace_labels", "webhooks", "device_classes", "slices"),
)


def workload(component: str, **changes: Any) -> Workload:
    """Return a workload of the chart with one ready pod."""
    environment = {"PODIUM_TRIAL_PRIORITY_CLASS": "podium-trial"} if component == OPERATOR else {}
    made = Workload(
        component,
        "podium-system",
        f"podium-{component}",
        "podium",
        __version__,
        desired=1,
        ready=1,
        images=CONTAINERS[component],
        environment=environment,
        priority_class="system-node-critical" if component == AGENT else "podium-system",
    )
    return replace(made, **changes)


def workloads(**changes: Workload) -> tuple[Workload, ...]:
    """Return the workloads of the chart; a keyword replaces the component of this name."""
    return tuple(changes.get(component, workload(component)) for component in (OPERATOR, SCHEDULER, AGENT))


def reservations() -> tuple[Workload, ...]:
    """Return the workloads of the chart in the mode reservations."""
    return workloads(agent=workload(AGENT, environment={"PODIUM_GPU_MODE": "reservations"}))


def queueing(name: str = "research") -> tuple[Workload, ...]:
    """Return the workloads of the chart with a LocalQueue of Kueue for reservations."""
    environment = {"PODIUM_GPU_MODE": "reservations", "PODIUM_RESERVATION_QUEUE": name}
    return workloads(operator=workload(OPERATOR, environment=environment))


def gpu_node(**changes: Any) -> GPUNode:
    """Return the GPUNode of the node: one healthy GPU with four slots."""
    gpu = {"uuid": "GPU-1", "index": 0, "health": "Healthy", "slots": 4}
    status = {"driver": "580.82.07", "agent": __version__, "methods": ["freeze"], "gpus": [gpu]}
    return GPUNode.model_validate({"metadata": {"name": "node-a"}, "status": status | changes})


NODE = NodeFacts(
    "node-a",
    "v1.36.3",
    "containerd://2.1.9",
    labels={"kubernetes.io/arch": "amd64"},
    allocatable={"cpu": "8", "podium.dev/gpu": "4"},
    handlers=frozenset({"", "nvidia"}),
    kubelet=KubeletConfig("systemd", True),
    cgroup_version=2,
)
HEALTHY = ClusterFacts(
    cli_version=__version__,
    namespace="podium-system",
    server_version="v1.36.3",
    nodes=(NODE,),
    workloads=workloads(),
    pods=tuple(
        ComponentPod(component, f"podium-{component}-x", "node-a", CONTAINERS[component]) for component in CONTAINERS
    ),
    crds=tuple(CrdFacts(name, True, tuple(versions)) for name, versions in EXPECTED_CRDS.items()),
    gpu_nodes={"node-a": gpu_node()},
    heartbeats={"node-a": 4.0},
    priority_classes={"podium-system": 1_000_000, "podium-trial": -1, "system-node-critical": 2_000_001_000},
    runtime_classes={"nvidia": "nvidia"},
    namespace_labels={"pod-security.kubernetes.io/enforce": "privileged"},
    webhooks=(),
    device_classes={},
    slices=(),
    local_queues=(),
)
EMPTY = replace(
    HEALTHY,
    nodes=(replace(NODE, allocatable={"cpu": "8", "nvidia.com/gpu": "1"}),),
    workloads=(),
    pods=(),
    crds=(),
    gpu_nodes=Unread("the API server does not serve this kind"),
    heartbeats={},
    priority_classes={},
    namespace_labels=None,
)


def node(**changes: Any) -> dict[str, Any]:
    """Return the change of the facts by which the node has other fields."""
    return {"nodes": (replace(NODE, **changes),)}


def outcomes(check: str, facts: ClusterFacts = HEALTHY, **changes: Any) -> list[tuple[str, str]]:
    """Return outcome and message of each result of a check, with parts of the facts replaced."""
    return [(one.outcome.value, one.message) for one in diagnose(replace(facts, **changes)) if one.check == check]
