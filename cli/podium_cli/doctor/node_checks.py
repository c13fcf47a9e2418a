"""Checks of a node and its kubelet: readiness, versions, container runtime, CDI, driver, cgroups, feature gates."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podium_cli.doctor.check_table import OLDEST, Result, error, ok, skipped, warning
from podium_cli.doctor.cluster_checks import NVIDIA_CLASS, minor_version
from podium_cli.doctor.facts import AGENT, OPERATOR, ClusterFacts, NodeFacts, Unread

OLDEST_RUNTIMES = {"containerd": (1, 7), "cri-o": (1, 25)}
CDI_RUNTIMES = {"containerd": (2, 0), "cri-o": (1, 25)}  # which accept CDI devices without a setting
DRIVERS = {"amd64": 570, "arm64": 595}  # the first one with cuda-checkpoint; docs/reference/suspension-methods.md
# Feature gates that are on by default in all supported versions, and what is missing without each.
GATES = {
    "ContainerCheckpoint": "live migration",
    "DevicePluginCDIDevices": "CDI devices for trials",
    "InPlacePodVerticalScaling": "suspension.downsizeCpu",
    "KubeletPodResources": "the agent, which cannot tell the GPUs of a pod",
}
_RUNTIME = re.compile(r"([a-z0-9-]+)://v?([0-9]{1,4})\.([0-9]{1,4})")
# Labels of NVIDIA's GPU feature discovery: its present ones, then the older ones.
DRIVER_LABEL, DRIVER_PARTS = (
    "nvidia.com/cuda.driver-version.full",
    ("nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev"),
)


def node_results(facts: ClusterFacts, node: NodeFacts) -> Iterator[Result]:
    """Yield the results of the checks of one node."""
    yield _ready(node)
    yield _version(facts, node)
    yield _runtime(node)
    yield _handler(facts, node)
    yield _cdi(node)
    yield _driver(facts, node)
    yield _cgroup_version(facts, node)
    yield _cgroup_driver(node)
    yield _feature_gates(node)


def runtime_version(text: str) -> tuple[str, tuple[int, int]] | None:
    """Return name and version of a container runtime such as containerd://2.1.9; None for another text."""
    found = _RUNTIME.match(text)
    return None if found is None else (found[1], (int(found[2]), int(found[3])))


def driver_version(facts: ClusterFacts, node: NodeFacts) -> str:
    """Return the driver's version as the agent or the node's labels say; empty if neither does."""
    gpu_node = facts.gpu_node(node.name)
    if gpu_node is not None and gpu_node.status.driver:
        return gpu_node.status.driver
    parts = [node.labels[label] for label in DRIVER_PARTS if node.labels.get(label)]
    return node.labels.get(DRIVER_LABEL, "") or ".".join(parts)


def _ready(node: NodeFacts) -> Result:
    if node.ready:
        return ok("NodeReady", node.name, "the node is ready")
    return error("NodeReady", node.name, f"the node is not ready: {node.ready_message or 'it gives no reason'}")


def _version(facts: ClusterFacts, node: NodeFacts) -> Result:
    code, version = "NodeVersion", minor_version(node.kubelet_version)
    if version is None:
        return skipped(code, node.name, f"{node.kubelet_version!r} is not a version of Kubernetes")
    if version < OLDEST:
        return error(code, node.name, f"kubelet {node.kubelet_version} is older than {OLDEST[0]}.{OLDEST[1]}")
    server = None if isinstance(facts.server_version, Unread) else minor_version(facts.server_version)
    if server is not None and version > server:
        message = f"kubelet {node.kubelet_version} is newer than the API server, {facts.server_version}"
        return error(code, node.name, message)
    return ok(code, node.name, f"kubelet {node.kubelet_version}")


def _runtime(node: NodeFacts) -> Result:
    code, runtime = "ContainerRuntime", runtime_version(node.runtime)
    if runtime is None:
        return skipped(code, node.name, f"{node.runtime!r} is not a name and version of a container runtime")
    name, version = runtime
    oldest = OLDEST_RUNTIMES.get(name)
    if oldest is None:
        return error(code, node.name, f"Podium does not know the runtime {node.runtime}")
    if version < oldest:
        return error(code, node.name, f"{node.runtime} is older than {oldest[0]}.{oldest[1]}")
    return ok(code, node.name, node.runtime)


def _handler(facts: ClusterFacts, node: NodeFacts) -> Result:
    code, classes, agent = "RuntimeHandler", facts.runtime_classes, facts.workload(AGENT)
    if isinstance(classes, Unread):
        return skipped(code, node.name, classes.reason)
    named = NVIDIA_CLASS if agent is None else agent.runtime_class
    handler = classes.get(named, "")
    if not handler:
        return skipped(code, node.name, "no runtime class is used" if agent else f"there is no class {NVIDIA_CLASS}")
    if not node.handlers:
        return skipped(code, node.name, f"the kubelet {node.kubelet_version} does not report its runtime's handlers")
    if handler not in node.handlers:
        there = ", ".join(sorted(filter(None, node.handlers))) or "only the default one"
        return error(code, node.name, f"class {named} needs the handler {handler}, and the runtime has: {there}")
    return ok(code, node.name, f"the runtime has the handler {handler}")


def _cdi(node: NodeFacts) -> Result:
    code, runtime = "CDI", runtime_version(node.runtime)
    if runtime is None or runtime[0] not in CDI_RUNTIMES:
        return skipped(code, node.name, f"not known for the runtime {node.runtime!r}")
    name, version = runtime
    unseen = "whether /var/run/cdi has a specification is seen on the node only"
    if version >= CDI_RUNTIMES[name]:
        return ok(code, node.name, f"{node.runtime} accepts CDI devices by default; {unseen}")
    if version >= OLDEST_RUNTIMES[name]:
        return warning(code, node.name, f"{node.runtime} accepts CDI devices only with enable_cdi = true; {unseen}")
    return error(code, node.name, f"{node.runtime} does not know CDI")


def _driver(facts: ClusterFacts, node: NodeFacts) -> Result:
    code, text = "Driver", driver_version(facts, node)
    if not text:
        reason = "neither an agent nor a label of NVIDIA's feature discovery gives the driver's version"
        return skipped(code, node.name, reason)
    if "(" in text:  # the agent adds what is wrong in parentheses
        return error(code, node.name, f"the agent reports driver {text}")
    major = text.partition(".")[0]
    oldest = DRIVERS.get(node.labels.get("kubernetes.io/arch", "amd64"))
    if oldest is None or not major.isdecimal():
        return skipped(code, node.name, f"driver {text}; it is not known what this version can do here")
    if int(major) < oldest:
        return warning(code, node.name, f"driver {text} is older than {oldest}, the first one with cuda-checkpoint")
    return ok(code, node.name, f"driver {text}")


def _cgroup_version(facts: ClusterFacts, node: NodeFacts) -> Result:
    code, version = "CgroupVersion", node.cgroup_version
    if isinstance(version, Unread):
        return skipped(code, node.name, version.reason)
    operator = facts.workload(OPERATOR)
    if version == 1 and operator is not None and operator.environment.get("PODIUM_LIMIT_GPU_MEMORY") == "true":
        message = "cgroup v1, and trials.limitGPUMemory is on: trials with gpus.memory do not start on this node"
        return error(code, node.name, message)
    if version == 1:
        return warning(code, node.name, "cgroup v1: the kubelet refuses it by default since 1.35")
    return ok(code, node.name, f"cgroup v{version}")


def _cgroup_driver(node: NodeFacts) -> Result:
    code, config = "CgroupDriver", node.kubelet
    if isinstance(config, Unread):
        return skipped(code, node.name, config.reason)
    if config.cgroup_driver == "cgroupfs" and node.cgroup_version == 2:
        message = "cgroupfs with cgroup v2: on a node with systemd, two programs manage one tree"
        return warning(code, node.name, message)
    return ok(code, node.name, config.cgroup_driver)


def _feature_gates(node: NodeFacts) -> Result:
    code, config = "FeatureGates", node.kubelet
    if isinstance(config, Unread):
        return skipped(code, node.name, config.reason)
    off = [f"{gate} (without it: {GATES[gate]})" for gate in GATES if not config.gates.get(gate, True)]
    if off:
        return warning(code, node.name, f"switched off: {', '.join(off)}")
    return ok(code, node.name, "no feature gate that Podium uses is switched off")
