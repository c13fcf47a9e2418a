"""Facts about a cluster that `podium doctor` judges: one frozen snapshot, read before the first check.

A fact that could not be read is an `Unread` with the reason, so that its checks are skipped and never pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from podium_core.placement.announced_gpus import announced_by_others, whole_amount
from podium_core.placement.needs import GPU_RESOURCE
from podium_core.schema.gpunode import GPUNode

T = TypeVar("T")
OPERATOR, SCHEDULER, AGENT = "operator", "scheduler", "agent"
# Labels by which NVIDIA's and the node feature discovery, GKE, EKS and AKS mark nodes with NVIDIA GPUs.
GPU_LABELS = (
    *("nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present"),
    *("cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator", "kubernetes.azure.com/accelerator"),
)


@dataclass(frozen=True, slots=True)
class Unread:
    """A fact that could not be read, and why. `status` is HTTP's of a request that was refused, else 0."""

    reason: str
    status: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class KubeletConfig:
    """The part of a kubelet's configuration that matters. `gates`: the feature gates that are set."""

    cgroup_driver: str
    fail_cgroup_v1: bool
    gates: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One Node. `handlers` are those of its container runtime; None: the kubelet does not report them."""

    name: str
    kubelet_version: str
    runtime: str  # such as containerd://2.1.9
    ready: bool = True
    ready_message: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    handlers: frozenset[str] | None = None
    kubelet: KubeletConfig | Unread = Unread("not asked for")
    cgroup_version: int | Unread = Unread("not asked for")

    @property
    def slots(self) -> int:
        """Return the slots of Podium that the kubelet offers."""
        return whole_amount(self.allocatable.get(GPU_RESOURCE, "0"))

    @property
    def other_gpus(self) -> dict[str, int]:
        """Return the GPU resources of other plugins that the kubelet offers."""
        return announced_by_others(self.allocatable)

    @property
    def shows_gpus(self) -> bool:
        """Return whether a resource or label says that the node has NVIDIA GPUs."""
        labelled = any(self.labels.get(label, "false") != "false" for label in GPU_LABELS)
        return labelled or GPU_RESOURCE in self.allocatable or bool(self.other_gpus)


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or DaemonSet of the chart. `version` is the chart's, which is Podium's."""

    component: str
    namespace: str
    name: str
    release: str
    version: str
    desired: int
    ready: int
    images: Mapping[str, str] = field(default_factory=dict)  # by container
    environment: Mapping[str, str] = field(default_factory=dict)  # of all containers; without references
    priority_class: str = ""
    runtime_class: str = ""


def named_queue(workloads: Iterable[Workload]) -> str:
    """Return the LocalQueue that the operator gives to reservations; empty if there is none."""
    found = (one.environment.get("PODIUM_RESERVATION_QUEUE", "") for one in workloads if one.component == OPERATOR)
    return next(found, "")


@dataclass(frozen=True, slots=True)
class ComponentPod:
    """A pod of the chart. `trouble`: why it is not ready; empty if it is."""

    component: str
    name: str
    node: str
    images: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class CrdFacts:
    """A CustomResourceDefinition of Podium; `versions` is its field `spec.versions`."""

    name: str
    established: bool
    versions: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook that intercepts pods and whose failure refuses them. `service`: empty if it has a URL."""

    configuration: str
    name: str
    service: str  # namespace/name
    url: str = ""
    endpoints: int | Unread = 0


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """The devices that a driver of dynamic resources offers on a node; `node` is empty for several nodes."""

    driver: str
    node: str
    devices: int


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """A LocalQueue of Kueue. `trouble`: why it admits nothing; empty if it is active."""

    namespace: str
    name: str
    cluster_queue: str
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Everything that the checks read. `only` is the node that the caller named; empty: all nodes."""

    cli_version: str
    namespace: str
    server_version: str | Unread
    nodes: tuple[NodeFacts, ...] | Unread
    workloads: tuple[Workload, ...] | Unread
    pods: tuple[ComponentPod, ...] | Unread
    crds: tuple[CrdFacts, ...] | Unread
    gpu_nodes: Mapping[str, GPUNode] | Unread
    heartbeats: Mapping[str, float] | Unread  # seconds since the last one, by node
    priority_classes: Mapping[str, int] | Unread
    runtime_classes: Mapping[str, str] | Unread  # handler by name
    namespace_labels: Mapping[str, str] | Unread | None  # None: the namespace does not exist
    webhooks: tuple[Webhook, ...] | Unread
    device_classes: Mapping[str, str] | Unread  # extendedResourceName by name
    slices: tuple[ResourceSlice, ...] | Unread
    local_queues: tuple[LocalQueue, ...] | Unread  # of the name in the chart; none if it names none
    only: str = ""

    def workload(self, component: str) -> Workload | None:
        """Return the first workload of a component; None if there is none, or if they are not known."""
        if isinstance(self.workloads, Unread):
            return None
        return next((one for one in self.workloads if one.component == component), None)

    @property
    def mode(self) -> str:
        """Return `gpus.mode` of the chart; empty if the chart is not installed."""
        agent = self.workload(AGENT)
        return "" if agent is None else agent.environment.get("PODIUM_GPU_MODE", "dedicated")

    @property
    def reservation_queue(self) -> str:
        """Return `gpus.reservations.queue` of the chart; empty if there is none."""
        return named_queue(() if isinstance(self.workloads, Unread) else self.workloads)

    def gpu_node(self, name: str) -> GPUNode | None:
        """Return the GPUNode of a node, if there is one."""
        return None if isinstance(self.gpu_nodes, Unread) else self.gpu_nodes.get(name)

    def has_gpus(self, node: NodeFacts) -> bool:
        """Return whether the node has NVIDIA GPUs, or the caller named it."""
        sliced = not isinstance(self.slices, Unread) and any(
            one.node == node.name and one.driver == "gpu.nvidia.com" for one in self.slices
        )
        return node.name == self.only or node.shows_gpus or sliced or self.gpu_node(node.name) is not None

    @property
    def checked_nodes(self) -> tuple[NodeFacts, ...]:
        """Return the nodes to check: the one that the caller named, or else all with GPUs."""
        if isinstance(self.nodes, Unread):
            return ()
        if self.only:
            return tuple(node for node in self.nodes if node.name == self.only)
        return tuple(node for node in self.nodes if self.has_gpus(node))
