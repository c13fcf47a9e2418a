"""Facts that the operator reads from a pod."""

from __future__ import annotations

from typing import Any

import pytest
from operator_builders import NOW, ended, make_cluster_state, make_node, make_pod, make_trial, pod_payload

from podium_core.testing.builders import make_pod_facts
from podium_operator.act.pod_manifest import TRIAL_LABEL, owner
from podium_operator.observe.cluster_state import trial_key
from podium_operator.observe.pod_state import parse_pod

PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
QUIET = {"waiting": {"reason": "PodInitializing"}}
NO_NODE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
NOT_DISRUPTED = {"type": "DisruptionTarget", "status": "False", "reason": "EvictionByEvictionAPI"}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "not scheduled": (
        {"node": None, "conditions": [NO_NODE]},
        {"node": None, "gate": "Waiting", "unschedulable": "0/2 nodes"},
    ),
    "scheduled, nothing yet": ({}, {"gate": "Waiting"}),
    "image missing": (
        {"gate": PULL, "main": QUIET},
        {"gate": "Waiting", "waiting_reason": "ImagePullBackOff", "message": "no such image"},
    ),
    "gate waits for its time slice": ({"gate": {"running": {}}, "main": QUIET}, {"gate": "Running"}),
    "gate has opened": (
        {"phase": "Running", "gate": ended(0), "main": {"running": {}}},
        {"phase": "Running", "gate": "Done"},
    ),
    "no gate at all": (
        {"gated": False, "phase": "Running", "main": {"running": {}}},
        {"phase": "Running", "gate": "None"},
    ),
    "ended well": (
        {"phase": "Succeeded", "gate": ended(0), "main": ended(0, reason="Completed")},
        {"phase": "Succeeded", "gate": "Done", "exit_code": 0, "exit_reason": "Completed"},
    ),
    "out of memory": (
        {"phase": "Failed", "gate": ended(0), "main": ended(137, reason="OOMKilled")},
        {"phase": "Failed", "gate": "Done", "exit_code": 137, "exit_reason": "OOMKilled"},
    ),
    "evicted": (
        {"phase": "Failed", "reason": "Evicted", "message": "disk", "conditions": [EVICTED]},
        {
            "phase": "Failed",
            "gate": "Waiting",
            "reason": "Evicted",
            "message": "disk",
            "disruption": "EvictionByEvictionAPI",
        },
    ),
    "the gate was ended": ({"phase": "Failed", "gate": ended(143), "main": QUIET}, {"phase": "Failed", "gate": "Done"}),
    "not disrupted": ({"conditions": [NOT_DISRUPTED]}, {"gate": "Waiting", "disruption": ""}),
    "being deleted": ({"deleting": True}, {"gate": "Waiting", "deleting": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_facts_of_a_pod(case: str) -> None:
    how, wanted = CASES[case]
    assert make_pod(**how).facts == make_pod_facts(**{"phase": "Pending", "node": "node-1", **wanted})


def test_the_reason_of_a_requeue_is_read_from_the_pod() -> None:
    payload = pod_payload(deleting=True)
    payload["metadata"]["annotations"] = {"podium.dev/requeue": "NodeDraining"}
    assert parse_pod(payload).facts.requeue == "NodeDraining"


def test_waiting_for_gpu_memory_is_read_from_the_conditions() -> None:
    condition = {"type": "podium.dev/holds-gpu", "status": "False", "reason": "Gated", "message": "its turn"}
    assert parse_pod(pod_payload(conditions=[condition])).facts.wait.gpu_memory == ""
    waiting = {**condition, "reason": "InsufficientGPUMemory", "message": "GPU x has 1 bytes free"}
    assert parse_pod(pod_payload(conditions=[waiting])).facts.wait.gpu_memory == "GPU x has 1 bytes free"


def test_the_worst_end_of_several_containers_counts() -> None:
    payload = pod_payload(phase="Failed", gate=ended(0))
    payload["status"]["containerStatuses"] = [
        {"name": "main", "state": ended(0, after=1)},
        {"name": "logger", "state": ended(3, after=4, reason="Error")},
    ]
    pod = parse_pod(payload)
    assert (pod.facts.end.code, pod.facts.end.reason, pod.ended_at) == (3, "Error", NOW + 4)


@pytest.mark.parametrize(("restarts", "failed", "code"), [("", "load", 7), ("Always", "", 0)])
def test_a_failed_init_container_is_the_end_of_the_pod_and_a_sidecar_is_not(
    restarts: str, failed: str, code: int
) -> None:
    payload = pod_payload(phase="Failed", main=ended(0, after=1))
    payload["spec"]["initContainers"].insert(0, {"name": "load", "restartPolicy": restarts})
    payload["status"]["initContainerStatuses"] = [
        {"name": "load", "state": ended(7, after=2)},
        {"name": "podium-gate", "state": QUIET},
    ]
    pod = parse_pod(payload)
    assert (pod.facts.end.failed_init, pod.facts.end.code) == (failed, code)
    assert pod.ended_at == NOW + (2 if failed else 1)


def test_the_owner_of_a_pod() -> None:
    pod = make_pod("sweep-4", attempt=2)
    assert (pod.trial, pod.trial_uid, pod.attempt, pod.name) == ("sweep-4", "uid-sweep-4", 2, "sweep-4-2")


CONTROLLER = owner("HyperParamTrial", "sweep-0", "uid-sweep-0")


@pytest.mark.parametrize(
    "forged",
    [
        {"labels": {}},
        {"labels": {TRIAL_LABEL: "sweep-1"}},
        {"ownerReferences": []},
        {"ownerReferences": [CONTROLLER | {"controller": False}]},
        {"ownerReferences": [CONTROLLER | {"name": "sweep-1"}]},
        {"ownerReferences": [CONTROLLER | {"kind": "Job"}]},
        {"ownerReferences": [CONTROLLER | {"apiVersion": "example.com/v1"}]},
        {"ownerReferences": [CONTROLLER | {"kind": "Job"}, CONTROLLER | {"controller": False}]},
    ],
)
def test_a_pod_that_no_trial_of_its_label_controls_is_refused(forged: dict[str, Any]) -> None:
    payload = pod_payload()
    assert parse_pod(payload).trial_uid == "uid-sweep-0"
    payload["metadata"] |= forged
    with pytest.raises(ValueError, match="no HyperParamTrial of that name controls it, nor a Job of one"):
        parse_pod(payload)


def test_an_owner_in_another_namespace_is_another_trial() -> None:
    """A pod may name any uid as its owner, also that of a trial in another namespace."""
    payload = pod_payload()
    payload["metadata"]["namespace"] = "tenant"
    trial, own, forged = make_trial(), make_pod(), parse_pod(payload)
    assert make_cluster_state(trial, own, forged).pods_by_trial[trial_key(trial)] == (own,)


def test_an_agent_cannot_report_a_pod_of_another_node() -> None:
    pod, reported = make_pod(node="node-a"), {"sweep-0": "Running"}
    honest, stolen = (make_node(name, uuid=f"GPU-of-{name}", trials=reported) for name in ("node-a", "node-b"))
    gpus = make_cluster_state(pod, stolen, honest).gpus_by_pod[pod.uid]
    assert [(node, gpu) for node, gpu, _ in gpus] == [("node-a", "GPU-of-node-a")]
