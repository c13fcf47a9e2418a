"""Table of the checks of `podium doctor`: code, group, what is checked, and the cure.

docs/reference/doctor.md is generated from it. The functions that check are in `cluster_checks` and its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

CLUSTER, INSTALLATION, NODE, KUBELET, GPUS = "Cluster", "Installation", "Node", "Kubelet", "GPUs"
GROUPS = (CLUSTER, INSTALLATION, NODE, KUBELET, GPUS)
OLDEST, NEWEST = (1, 32), (1, 37)  # supported versions of Kubernetes: docs/reference/kubernetes-versions.md


class Outcome(StrEnum):
    """Outcome of a check. Only an error makes the command fail."""

    ERROR = "error"
    WARNING = "warning"
    SKIPPED = "skipped"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `title` says what must be so, `cure` what to do if it is not."""

    code: str
    group: str
    title: str
    cure: str


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of a check for one subject, such as a node, with a sentence."""

    check: str  # code
    subject: str
    outcome: Outcome
    message: str

    @property
    def cure(self) -> str:
        """Return what to do; empty if nothing is wrong."""
        return BY_CODE[self.check].cure if self.outcome in (Outcome.ERROR, Outcome.WARNING) else ""


def ok(check: str, subject: str, message: str) -> Result:
    """Return the result of a check that found nothing wrong."""
    return Result(check, subject, Outcome.OK, message)


def warning(check: str, subject: str, message: str) -> Result:
    """Return the result of a check that found what may go wrong."""
    return Result(check, subject, Outcome.WARNING, message)


def error(check: str, subject: str, message: str) -> Result:
    """Return the result of a check that found what is wrong."""
    return Result(check, subject, Outcome.ERROR, message)


def skipped(check: str, subject: str, reason: str) -> Result:
    """Return the result of a check that could not be made."""
    return Result(check, subject, Outcome.SKIPPED, reason)


CHECKS = (
    Check(
        "KubernetesVersion",
        CLUSTER,
        "The API server has a version that Podium supports.",
        "Upgrade the cluster, or use a release of Podium for its version (docs/reference/kubernetes-versions.md).",
    ),
    Check(
        "PodWebhooks",
        CLUSTER,
        "Every admission webhook that intercepts pods and whose failure refuses them has a ready endpoint.",
        "Start the pods behind the webhook's service, or delete the webhook's configuration if its owner is gone.",
    ),
    Check(
        "NamespacePodSecurity",
        CLUSTER,
        "Podium's namespace admits privileged pods, because the agent is privileged.",
        "kubectl label --overwrite namespace NAMESPACE pod-security.kubernetes.io/enforce=privileged",
    ),
    Check(
        "RuntimeClasses",
        CLUSTER,
        "The runtime class that the agent's pods name exists; before the installation: whether there is one for GPUs.",
        "Install NVIDIA's container toolkit with its RuntimeClass, or name another class in the chart's values.",
    ),
    Check(
        "DynamicResources",
        CLUSTER,
        "At most one DeviceClass stands for nvidia.com/gpu.",
        "Delete the others, or remove their extendedResourceName (docs/explanation/gpu-reservations.md).",
    ),
    Check(
        "KueueQueue",
        CLUSTER,
        "The LocalQueue of Kueue that the chart names for GPU reservations exists and is active.",
        "Create it in each namespace with jobs, with an active ClusterQueue; or change gpus.reservations.queue.",
    ),
    Check(
        "GPUNodes",
        CLUSTER,
        "At least one node has NVIDIA GPUs.",
        "Install the driver and NVIDIA's feature discovery, or name a node with GPUs: podium doctor NODE.",
    ),
    Check(
        "ChartInstalled",
        INSTALLATION,
        "Exactly one release of Podium's chart is installed.",
        "Install the chart (docs/how-to/install.md), or uninstall all releases but one.",
    ),
    Check(
        "CRDs",
        INSTALLATION,
        "The CRDs exist and are those of the installed version; Helm creates them and never upgrades them.",
        "kubectl apply --server-side --force-conflicts -f charts/podium/crds, with the installed version's source.",
    ),
    Check(
        "Operator",
        INSTALLATION,
        "All pods of the operator are ready.",
        "See kubectl describe pod and kubectl logs of the pod that is named.",
    ),
    Check(
        "Scheduler",
        INSTALLATION,
        "All pods of Podium's scheduler, with the extender, are ready.",
        "See kubectl describe pod and kubectl logs of the pod that is named.",
    ),
    Check(
        "Agents",
        INSTALLATION,
        "All pods of the agent are ready.",
        "See kubectl describe daemonset, kubectl describe pod and kubectl logs of the pod that is named.",
    ),
    Check(
        "ComponentVersions",
        INSTALLATION,
        "Operator, extender, agents and this command have one version.",
        "Wait for the end of the upgrade; then delete pods that still run the old image, and upgrade this command.",
    ),
    Check(
        "PriorityClasses",
        INSTALLATION,
        "The priority classes that the components give their pods exist, and trials and reservations come last.",
        "Create the class, or set name and value in the chart's values; trials and reservations need a negative one.",
    ),
    Check(
        "NodeReady",
        NODE,
        "The node is ready.",
        "See kubectl describe node; start the kubelet and the container runtime of the node.",
    ),
    Check(
        "NodeVersion",
        NODE,
        "The kubelet has a version that Podium supports, and is not newer than the API server.",
        "Upgrade the node, or the control plane first.",
    ),
    Check(
        "ContainerRuntime",
        NODE,
        "The container runtime is a containerd or CRI-O that Podium knows.",
        "Use containerd 1.7 or newer, or CRI-O 1.25 or newer.",
    ),
    Check(
        "RuntimeHandler",
        NODE,
        "The node's container runtime has the handler of the agent's runtime class.",
        "Configure the runtime on the node: nvidia-ctk runtime configure, then restart it.",
    ),
    Check(
        "CDI",
        NODE,
        "The container runtime accepts CDI devices.",
        "Set enable_cdi = true in containerd's configuration and restart it, or use containerd 2.0 or newer.",
    ),
    Check(
        "Driver",
        NODE,
        "NVIDIA's driver answers, and is new enough to move GPU memory (cuda-checkpoint).",
        "Install or upgrade the driver, and see the agent's log; older drivers can use freeze and app-checkpoint.",
    ),
    Check(
        "CgroupVersion",
        KUBELET,
        "The node uses cgroup v2.",
        "Boot the node with cgroup v2 (systemd.unified_cgroup_hierarchy=1): Kubernetes will drop version 1.",
    ),
    Check(
        "CgroupDriver",
        KUBELET,
        "The kubelet's cgroup driver fits the cgroup version: systemd with version 2.",
        "Set cgroupDriver: systemd in the kubelet's configuration and the same in the container runtime's.",
    ),
    Check(
        "FeatureGates",
        KUBELET,
        "No feature gate that Podium uses is switched off.",
        "Remove the gate from the kubelet's configuration, or do without the function that needs it.",
    ),
    Check(
        "AgentOnNode",
        GPUS,
        "An agent serves the node: its GPUNode exists and its heartbeat is fresh.",
        "Check agent.nodeSelector and agent.tolerations in the chart's values, and the log of the node's agent.",
    ),
    Check(
        "GPUsGivenOutOnce",
        GPUS,
        "Only one of Podium and other device plugins or drivers gives out the node's GPUs.",
        "Give the node to one of them (docs/how-to/give-a-node-to-another-plugin.md), or use gpus.mode=reservations.",
    ),
    Check(
        "ReservableGPUs",
        GPUS,
        "In the mode `reservations`, the node offers whole GPUs that are not shared as nvidia.com/gpu.",
        "Start NVIDIA's device plugin on the node, without time-slicing, MPS and MIG.",
    ),
    Check(
        "SlotsOffered",
        GPUS,
        "The kubelet offers the slots of the node's healthy GPUs.",
        "See the log of the node's agent: the device plugin registers with the kubelet again after each restart.",
    ),
    Check(
        "GPUHealth",
        GPUS,
        "All GPUs of the node are healthy.",
        "Read the reason in kubectl get gpunode NODE; reset or replace the GPU.",
    ),
    Check(
        "SuspensionMethods",
        GPUS,
        "The agent can suspend trials on the node.",
        "See the agent's log, which gives the reason for each method (docs/reference/suspension-methods.md).",
    ),
)
BY_CODE = {check.code: check for check in CHECKS}
