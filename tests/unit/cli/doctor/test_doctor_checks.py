"""Every check of `podium doctor` with both outcomes: what is right passes, what is wrong is found and named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from doctor_facts import (
    EMPTY,
    FORBIDDEN,
    HEALTHY,
    NODE,
    UNREADABLE,
    gpu_node,
    node,
    outcomes,
    queueing,
    reservations,
    workload,
    workloads,
)

from podium_cli.doctor.check_table import CHECKS, Outcome
from podium_cli.doctor.diagnosis import diagnose, has_errors
from podium_cli.doctor.facts import (
    AGENT,
    OPERATOR,
    SCHEDULER,
    ComponentPod,
    CrdFacts,
    KubeletConfig,
    LocalQueue,
    ResourceSlice,
    Unread,
    Webhook,
)

RESERVING: dict[str, Any] = {"workloads": reservations(), **node(allocatable={"nvidia.com/gpu": "2"})}
REFUSED = {"type": "Usable", "status": "False", "reason": "OtherDevicePlugin", "message": "lab/serve has one"}
# check, changes of a healthy cluster, outcome, a part of the message
WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("KubernetesVersion", {"server_version": "v1.31.9"}, "error", "v1.31.9 is too old"),
    ("KubernetesVersion", {"server_version": "v1.99.0"}, "warning", "v1.99.0 is newer"),
    ("KubernetesVersion", {"server_version": "today"}, "skipped", "'today' is not a version"),
    ("PodWebhooks", {"webhooks": (Webhook("policy", "pods.policy", "ns/policy"),)}, "error", "ns/policy has no ready"),
    ("PodWebhooks", {"webhooks": (Webhook("p", "q", "", url="https://x"),)}, "skipped", "https://x"),
    ("PodWebhooks", {"webhooks": (Webhook("p", "q", "n/s", endpoints=FORBIDDEN),)}, "skipped", "forbidden"),
    (
        "NamespacePodSecurity",
        {"namespace_labels": {"pod-security.kubernetes.io/enforce": "baseline"}},
        "error",
        "enforce is baseline",
    ),
    ("NamespacePodSecurity", {"namespace_labels": None}, "skipped", "does not exist yet"),
    (
        "RuntimeClasses",
        {"workloads": workloads(agent=workload(AGENT, runtime_class="gpus"))},
        "error",
        "does not exist; there are: nvidia",
    ),
    ("DynamicResources", {"device_classes": {"a": "nvidia.com/gpu", "b": "nvidia.com/gpu"}}, "warning", "a, b stand"),
    ("KueueQueue", {"workloads": queueing()}, "error", "no namespace has it"),
    ("KueueQueue", {"workloads": queueing(), "local_queues": Unread("none", 404)}, "warning", "is not installed"),
    ("KueueQueue", {"workloads": queueing(), "local_queues": FORBIDDEN}, "skipped", "forbidden"),
    (
        "KueueQueue",
        {
            "workloads": queueing(),
            "local_queues": (LocalQueue("lab", "research", "cq", "ClusterQueueDoesNotExist: no"),),
        },
        "error",
        "ClusterQueueDoesNotExist: no",
    ),
    ("GPUNodes", {**node(allocatable={"cpu": "1"}), "gpu_nodes": {}}, "warning", "none of the 1 nodes"),
    ("ChartInstalled", {"workloads": ()}, "warning", "not installed yet"),
    ("ChartInstalled", {"workloads": (*workloads(), workload(AGENT, release="b"))}, "error", "podium-system/b"),
    ("CRDs", {"crds": HEALTHY.crds[1:]}, "error", "missing"),  # type: ignore[index]
    ("CRDs", {"crds": (CrdFacts("gpunodes.podium.dev", False),)}, "error", "Established is not true"),
    ("CRDs", {"crds": (CrdFacts("gpunodes.podium.dev", True, ({"name": "v1alpha1"},)),)}, "error", "schema is not"),
    (
        "CRDs",
        {"workloads": workloads(operator=workload(OPERATOR, version="9.9.9"))},
        "skipped",
        "the chart 9.9.9",
    ),
    ("Operator", {"workloads": workloads(operator=workload(OPERATOR, ready=0))}, "error", "0 of 1 pods are ready"),
    ("Operator", {"workloads": workloads(operator=workload(OPERATOR, desired=2))}, "warning", "1 of 2 pods"),
    ("Operator", {"workloads": workloads()[1:]}, "error", "without it"),
    (
        "Scheduler",
        {
            "workloads": workloads(scheduler=workload(SCHEDULER, ready=0)),
            "pods": (ComponentPod(SCHEDULER, "podium-scheduler-x", "node-b", trouble="ErrImagePull: none"),),
        },
        "error",
        "podium-scheduler-x on node-b: ErrImagePull: none",
    ),
    ("Scheduler", {"workloads": workloads(scheduler=workload(SCHEDULER, desired=0, ready=0))}, "error", "scaled to 0"),
    ("Agents", {"workloads": workloads(agent=workload(AGENT, desired=2))}, "error", "1 of 2 pods are ready"),
    ("Agents", {"workloads": workloads(agent=workload(AGENT, desired=0, ready=0))}, "error", "no node is selected"),
    ("ComponentVersions", {"cli_version": "0.0.9"}, "warning", "version 0.0.9"),
    ("ComponentVersions", {"gpu_nodes": {"node-a": gpu_node(agent="0.0.9")}}, "warning", "version 0.0.9"),
    (
        "ComponentVersions",
        {"pods": (ComponentPod(AGENT, "podium-agent-x", "node-a", {"agent": "podium:old"}),)},
        "warning",
        "runs image podium:old",
    ),
    ("PriorityClasses", {"priority_classes": {"podium-system": 1, "podium-trial": -1}}, "error", "does not exist"),
    (
        "PriorityClasses",
        {"priority_classes": {"podium-system": 1, "podium-trial": 5, "system-node-critical": 2}},
        "warning",
        "its value is 5",
    ),
    ("NodeReady", node(ready=False, ready_message="KubeletNotReady: no network"), "error", "no network"),
    ("NodeVersion", node(kubelet_version="v1.30.1"), "error", "older than 1.32"),
    ("NodeVersion", node(kubelet_version="v1.37.0"), "error", "newer than the API server"),
    ("NodeVersion", node(kubelet_version="unknown"), "skipped", "'unknown'"),
    ("ContainerRuntime", node(runtime="containerd://1.6.2"), "error", "older than 1.7"),
    ("ContainerRuntime", node(runtime="docker://27.0.1"), "error", "does not know the runtime docker://27.0.1"),
    ("ContainerRuntime", node(runtime=""), "skipped", "''"),
    (
        "RuntimeHandler",
        {
            "workloads": workloads(agent=workload(AGENT, runtime_class="nvidia")),
            **node(handlers=frozenset({"", "runc"})),
        },
        "error",
        "needs the handler nvidia, and the runtime has: runc",
    ),
    ("RuntimeHandler", {"workloads": ()} | node(handlers=None), "skipped", "does not report"),
    ("CDI", node(runtime="containerd://1.7.27"), "warning", "enable_cdi"),
    ("CDI", node(runtime="containerd://1.6.2"), "error", "does not know CDI"),
    ("Driver", {"gpu_nodes": {"node-a": gpu_node(driver="none (DriverMissing: x)")}}, "error", "DriverMissing"),
    ("Driver", {"gpu_nodes": {"node-a": gpu_node(driver="550.54.14")}}, "warning", "older than 570"),
    ("Driver", {"gpu_nodes": {}, **node(labels={"nvidia.com/cuda.driver.major": "535"})}, "warning", "driver 535"),
    ("Driver", {"gpu_nodes": {}}, "skipped", "neither an agent nor a label"),
    ("CgroupVersion", node(cgroup_version=1), "warning", "cgroup v1"),
    (
        "CgroupVersion",
        {
            "workloads": workloads(operator=workload(OPERATOR, environment={"PODIUM_LIMIT_GPU_MEMORY": "true"})),
            **node(cgroup_version=1),
        },
        "error",
        "trials with gpus.memory do not start on this node",
    ),
    ("CgroupVersion", node(cgroup_version=FORBIDDEN), "skipped", "forbidden"),
    ("CgroupDriver", node(kubelet=KubeletConfig("cgroupfs", True)), "warning", "two programs"),
    ("CgroupDriver", node(kubelet=FORBIDDEN), "skipped", "forbidden"),
    (
        "FeatureGates",
        node(kubelet=KubeletConfig("systemd", True, {"ContainerCheckpoint": False})),
        "warning",
        "ContainerCheckpoint (without it: live migration)",
    ),
    ("FeatureGates", node(kubelet=FORBIDDEN), "skipped", "forbidden"),
    ("AgentOnNode", {"gpu_nodes": {}}, "error", "there is no GPUNode"),
    ("AgentOnNode", {"heartbeats": {}}, "error", "no heartbeat"),
    ("AgentOnNode", {"heartbeats": {"node-a": 300.0}}, "error", "300 s old"),
    (
        "GPUsGivenOutOnce",
        node(allocatable={"podium.dev/gpu": "4", "nvidia.com/gpu": "1"}),
        "error",
        "nvidia.com/gpu: 1 beside 4 slots",
    ),
    ("GPUsGivenOutOnce", node(allocatable={"nvidia.com/gpu": "1"}), "error", "Podium refuses its GPUs"),
    ("GPUsGivenOutOnce", {"slices": (ResourceSlice("gpu.nvidia.com", "node-a", 8),)}, "error", "gpu.nvidia.com: 8"),
    (
        "GPUsGivenOutOnce",
        {"gpu_nodes": {"node-a": gpu_node(conditions=[REFUSED])}},
        "error",
        "its agent reports OtherDevicePlugin: lab/serve has one",
    ),
    ("GPUsGivenOutOnce", {"slices": FORBIDDEN}, "skipped", "forbidden"),
    ("ReservableGPUs", {}, "skipped", "gpus.mode is dedicated"),
    ("ReservableGPUs", {"workloads": reservations()}, "error", "offers no nvidia.com/gpu"),
    (
        "ReservableGPUs",
        {
            "workloads": reservations(),
            **node(allocatable={"nvidia.com/gpu": "8"}, labels={"nvidia.com/gpu.sharing-strategy": "time-slicing"}),
        },
        "error",
        "shared by time-slicing",
    ),
    ("SlotsOffered", node(allocatable={"podium.dev/gpu": "0"}), "error", "4 slots, and the kubelet offers none"),
    ("SlotsOffered", {"gpu_nodes": {"node-a": gpu_node(gpus=[])}}, "error", "reports no GPU"),
    (
        "GPUHealth",
        {
            "gpu_nodes": {
                "node-a": gpu_node(gpus=[{"uuid": "G", "index": 3, "health": "Unhealthy", "healthReason": "Xid79"}])
            }
        },
        "warning",
        "3: Xid79",
    ),
    ("SuspensionMethods", {"gpu_nodes": {"node-a": gpu_node(methods=[])}}, "error", "no suspension method"),
]
# Right in a special case, which must not look wrong.
RIGHT: list[tuple[str, dict[str, Any], str]] = [
    ("PodWebhooks", {"webhooks": (Webhook("p", "q", "n/s", endpoints=2),)}, "ready endpoints: 2"),
    ("NamespacePodSecurity", {"namespace_labels": {}}, "the cluster's default applies"),
    ("RuntimeClasses", {"runtime_classes": {}}, "there is no RuntimeClass nvidia"),
    ("DynamicResources", {"device_classes": {"gpu": "nvidia.com/gpu"}}, "in the mode reservations only"),
    ("DynamicResources", {**RESERVING, "device_classes": {"gpu": "nvidia.com/gpu"}}, "itself gives up a reservation"),
    (
        "KueueQueue",
        {"workloads": queueing(), "local_queues": (LocalQueue("lab", "research", "cq"),)},
        "it is active; ClusterQueue: cq",
    ),
    ("GPUNodes", {"only": "node-a"}, "named by the caller"),
    ("Driver", {"gpu_nodes": {}, **node(labels={"nvidia.com/cuda.driver-version.full": "580.1"})}, "driver 580.1"),
    ("CgroupDriver", node(kubelet=KubeletConfig("cgroupfs", False), cgroup_version=1), "cgroupfs"),
    ("CDI", node(runtime="cri-o://1.34.0"), "accepts CDI devices by default"),
    ("GPUsGivenOutOnce", RESERVING, "Podium uses only GPUs that it reserves"),
    ("GPUsGivenOutOnce", node(allocatable={"podium.dev/gpu": "4", "nvidia.com/gpu": "0"}), "no other plugin"),
    ("ReservableGPUs", RESERVING, "nvidia.com/gpu: 2"),
    (
        "ReservableGPUs",
        {
            "workloads": reservations(),
            "device_classes": {"gpu": "nvidia.com/gpu"},
            "slices": (ResourceSlice("gpu.nvidia.com", "node-a", 8), ResourceSlice("gpu.nvidia.com", "node-b", 8)),
        },
        "nvidia.com/gpu: 8 of a DeviceClass",
    ),
    ("RuntimeHandler", {"workloads": workloads(agent=workload(AGENT, runtime_class="nvidia"))}, "handler nvidia"),
]
# Skipped in a healthy cluster: there is nothing to compare.
NOT_MADE = {"ReservableGPUs": "gpus.mode is dedicated", "RuntimeHandler": "no runtime class is used"}


def test_a_healthy_cluster_passes_every_check() -> None:
    results = diagnose(HEALTHY)
    assert {one.check for one in results} == {check.code for check in CHECKS}
    wrong = [one for one in results if one.outcome is not Outcome.OK and one.check not in NOT_MADE]
    assert wrong == []
    assert {one.check: one.message for one in results if one.check in NOT_MADE} == NOT_MADE
    assert not has_errors(results)


@pytest.mark.parametrize(("check", "changes", "outcome", "words"), WRONG)
def test_what_is_wrong_is_found(check: str, changes: dict[str, Any], outcome: str, words: str) -> None:
    assert any(found == outcome and words in message for found, message in outcomes(check, **changes)), outcomes(
        check, **changes
    )
    if outcome == "error":
        assert has_errors(diagnose(replace(HEALTHY, **changes)))


@pytest.mark.parametrize(("check", "changes", "words"), RIGHT)
def test_what_is_right_passes(check: str, changes: dict[str, Any], words: str) -> None:
    found = outcomes(check, **changes)
    assert [outcome for outcome, _ in found] == ["ok"], found
    assert words in found[0][1]


def test_every_check_has_a_case_of_what_is_wrong() -> None:
    found = {check for check, _, outcome, _ in WRONG if outcome in ("error", "warning")}
    assert found == {check.code for check in CHECKS}


@pytest.mark.parametrize("fact", UNREADABLE)
def test_a_fact_that_cannot_be_read_is_skipped_with_its_reason_and_never_passes(fact: str) -> None:
    before = {(one.check, one.subject): one for one in diagnose(HEALTHY)}
    after = diagnose(replace(HEALTHY, **{fact: FORBIDDEN}))
    reasons = [one for one in after if FORBIDDEN.reason in one.message]
    if fact == "pods":  # they only explain why a workload is not ready
        changed = outcomes("Operator", workloads=workloads(operator=workload(OPERATOR, ready=0)), pods=FORBIDDEN)
        assert FORBIDDEN.reason in changed[0][1]
        return
    assert reasons, fact
    assert {one.outcome for one in reasons} == {Outcome.SKIPPED}
    assert all(before.get((one.check, one.subject), one).outcome is not Outcome.ERROR for one in reasons)
    assert {one.check for one in after} == {check.code for check in CHECKS}


def test_a_cluster_without_podium_has_no_error_and_skips_what_comes_with_the_chart() -> None:
    results = diagnose(EMPTY)
    assert not has_errors(results), [one for one in results if one.outcome is Outcome.ERROR]
    skipped = {one.check for one in results if one.outcome is Outcome.SKIPPED}
    assert {"CRDs", "Operator", "Scheduler", "Agents", "PriorityClasses", "AgentOnNode", "SlotsOffered"} <= skipped
    (warned,) = outcomes("GPUsGivenOutOnce", EMPTY)
    assert warned == ("warning", "the node offers nvidia.com/gpu: 1: in the mode dedicated, Podium would refuse it")


def test_without_a_node_with_gpus_its_checks_are_skipped() -> None:
    results = diagnose(replace(EMPTY, nodes=(replace(NODE, allocatable={}),)))
    assert {one.outcome for one in results if one.check == "CgroupVersion"} == {Outcome.SKIPPED}


def test_a_named_node_is_checked_although_it_shows_no_gpu() -> None:
    facts = replace(EMPTY, nodes=(replace(NODE, allocatable={}),), only="node-a")
    assert outcomes("CgroupVersion", facts) == [("ok", "cgroup v2")]


def test_results_begin_with_errors_and_each_problem_has_its_cure() -> None:
    results = diagnose(replace(HEALTHY, server_version="v1.1", heartbeats=Unread("x"), cli_version="0"))
    places = [list(Outcome).index(one.outcome) for one in results]
    assert places == sorted(places)
    assert all(bool(one.cure) == (one.outcome in (Outcome.ERROR, Outcome.WARNING)) for one in results)
