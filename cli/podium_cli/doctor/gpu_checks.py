"""Checks of the GPUs of a node: agent, owner of the GPUs, slots, health and suspension methods."""

from __future__ import annotations

from collections.abc import Iterator

from podium_cli.doctor.check_table import Result, error, ok, skipped, warning
from podium_cli.doctor.facts import AGENT, ClusterFacts, NodeFacts, Unread
from podium_core.placement.announced_gpus import NVIDIA_GPU
from podium_core.schema.gpunode import USABLE, GPUNode

STALE_SECONDS = 60.0  # an agent renews its heartbeat every ten seconds
SHARING_LABEL = "nvidia.com/gpu.sharing-strategy"  # of NVIDIA's feature discovery: none, time-slicing or mps
NVIDIA_DRA = "gpu.nvidia.com"  # NVIDIA's driver of Dynamic Resource Allocation


def gpu_results(facts: ClusterFacts, node: NodeFacts) -> Iterator[Result]:
    """Yield the results of the checks of one node's GPUs."""
    yield _agent(facts, node)
    yield _given_out_once(facts, node)
    yield _reservable(facts, node)
    gpu_node = facts.gpu_node(node.name)
    if gpu_node is None:
        reason = facts.gpu_nodes.reason if isinstance(facts.gpu_nodes, Unread) else "no agent has reported"
        for code in ("SlotsOffered", "GPUHealth", "SuspensionMethods"):
            yield skipped(code, node.name, reason)
        return
    yield _slots(node, gpu_node)
    yield _health(node, gpu_node)
    yield _methods(node, gpu_node)


def _agent(facts: ClusterFacts, node: NodeFacts) -> Result:
    code, beats = "AgentOnNode", facts.heartbeats
    if isinstance(facts.workloads, Unread):
        return skipped(code, node.name, facts.workloads.reason)
    if facts.workload(AGENT) is None:
        return skipped(code, node.name, "Podium is not installed")
    if isinstance(facts.gpu_nodes, Unread):
        return skipped(code, node.name, facts.gpu_nodes.reason)
    if node.name not in facts.gpu_nodes:
        return error(code, node.name, "there is no GPUNode: no agent has reported from this node")
    if isinstance(beats, Unread):
        return skipped(code, node.name, beats.reason)
    age = beats.get(node.name)
    if age is None:
        return error(code, node.name, f"its agent has no heartbeat in namespace {facts.namespace}")
    if age > STALE_SECONDS:
        return error(code, node.name, f"its agent is silent: the last heartbeat is {age:.0f} s old")
    return ok(code, node.name, "its agent reports")


def _given_out_once(facts: ClusterFacts, node: NodeFacts) -> Result:
    code, others = "GPUsGivenOutOnce", [f"{name}: {amount}" for name, amount in node.other_gpus.items()]
    if isinstance(facts.slices, Unread):
        unseen = f"; ResourceSlices are not known ({facts.slices.reason})"
    else:
        unseen = ""
        others += [
            f"ResourceSlice of {one.driver}: {one.devices}"
            for one in facts.slices
            if one.node == node.name and one.driver == NVIDIA_DRA
        ]
    gpu_node = facts.gpu_node(node.name)
    refused = [] if gpu_node is None else [one for one in gpu_node.status.conditions if one.type == USABLE]
    if facts.mode == "reservations":
        return ok(code, node.name, "Podium uses only GPUs that it reserves in the mode reservations")
    if refused and refused[0].status == "False":
        return error(code, node.name, f"its agent reports {refused[0].reason}: {refused[0].message}")
    if others:
        found = ", ".join(others)
        if node.slots > 0:
            message = f"the node offers {found} beside {node.slots} slots of Podium: one GPU may be given out twice"
            return error(code, node.name, message)
        if gpu_node is not None:
            return error(code, node.name, f"the node offers {found}, so Podium refuses its GPUs in the mode dedicated")
        return warning(code, node.name, f"the node offers {found}: in the mode dedicated, Podium would refuse it")
    if unseen:
        return skipped(code, node.name, f"no other plugin offers GPUs{unseen}")
    return ok(code, node.name, "no other plugin or driver offers its GPUs")


def _reservable(facts: ClusterFacts, node: NodeFacts) -> Result:
    code = "ReservableGPUs"
    if facts.mode != "reservations":
        return skipped(code, node.name, f"gpus.mode is {facts.mode or 'not known yet'}")
    whole, parts = node.other_gpus.get(NVIDIA_GPU, 0), [name for name in node.other_gpus if name != NVIDIA_GPU]
    sharing = node.labels.get(SHARING_LABEL, "none")
    dynamic = _dynamic_gpus(facts, node)
    if whole == 0 and dynamic:
        return ok(code, node.name, f"{NVIDIA_GPU}: {dynamic} of a DeviceClass")
    if whole == 0:
        there = f"; it offers {', '.join(parts)}" if parts else ""
        return error(code, node.name, f"the node offers no {NVIDIA_GPU}, so Podium can reserve nothing{there}")
    if sharing != "none":
        return error(code, node.name, f"{NVIDIA_GPU} is shared by {sharing}, so a reservation holds no whole GPU")
    return ok(code, node.name, f"{NVIDIA_GPU}: {whole}")


def _dynamic_gpus(facts: ClusterFacts, node: NodeFacts) -> int:
    """Return how many dynamic resources (DRA) of the node pods can request as nvidia.com/gpu."""
    classes, slices = facts.device_classes, facts.slices
    if isinstance(classes, Unread) or isinstance(slices, Unread) or NVIDIA_GPU not in classes.values():
        return 0
    return sum(one.devices for one in slices if one.node == node.name and one.driver == NVIDIA_DRA)


def _slots(node: NodeFacts, gpu_node: GPUNode) -> Result:
    code = "SlotsOffered"
    expected = sum(gpu.slots for gpu in gpu_node.status.gpus if gpu.health == "Healthy")
    if not gpu_node.status.gpus:
        return error(code, node.name, "the agent reports no GPU")
    if expected > 0 and node.slots == 0:
        return error(code, node.name, f"the agent has {expected} slots, and the kubelet offers none")
    return ok(code, node.name, f"slots: {node.slots}; GPUs: {len(gpu_node.status.gpus)}")


def _health(node: NodeFacts, gpu_node: GPUNode) -> Result:
    sick = [
        f"{gpu.index}: {gpu.health_reason or gpu.health}" for gpu in gpu_node.status.gpus if gpu.health != "Healthy"
    ]
    if sick:
        return warning("GPUHealth", node.name, f"GPUs that are not healthy: {'; '.join(sick)}")
    return ok("GPUHealth", node.name, f"healthy GPUs: {len(gpu_node.status.gpus)}")


def _methods(node: NodeFacts, gpu_node: GPUNode) -> Result:
    code, methods = "SuspensionMethods", gpu_node.status.methods
    if not methods:
        needed = "cuda-checkpoint is needed" if gpu_node.status.mode == "reservations" else "not even freeze"
        return error(code, node.name, f"no suspension method works in the mode {gpu_node.status.mode}: {needed}")
    return ok(code, node.name, ", ".join(methods))
