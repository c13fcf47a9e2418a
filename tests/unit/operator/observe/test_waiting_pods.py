"""Which pods wait for a GPU that they may preempt, as the API server shows them: a table."""

from __future__ import annotations

from typing import Any

import pytest

from podium_operator.observe.waiting_pods import parse_unplaced_pod
from podium_operator.reservations.reservation_pod import RESERVATION_LABEL

# kube-scheduler 1.36.3, with one node whose only GPU is a dynamic resource that another pod has
FULL = (
    "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are "
    "available: 1 Preemption is not helpful for scheduling."
)
CPU = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found."
VOLUME = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
PLUGIN = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def pod(
    message: str = FULL,
    *,
    gpus: str = "1",
    reason: str = "Unschedulable",
    meta: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    requests = {"cpu": "1"} | ({"nvidia.com/gpu": gpus} if gpus else {})
    return {
        "metadata": {"name": "plain", "namespace": "others", "uid": "u", **(meta or {})},
        "spec": {"priority": 5, "containers": [{"name": "main", "resources": {"requests": requests}}], **spec},
        "status": {"phase": "Pending", "conditions": [scheduled], **(status or {})},
    }


WAITING = {
    "a request for nvidia.com/gpu": pod(),
    "the message of a device plugin": pod(PLUGIN),
    "another scheduler's words": pod("no resources in queue research"),
    "two GPUs": pod(gpus="2"),
}
OTHERS = {
    "no GPU": pod(gpus=""),
    "no CPU": pod(CPU),
    "no volume": pod(VOLUME),
    "gated": pod(reason="SchedulingGated"),
    "not tried yet": pod(status={"conditions": []}),
    "being deleted": pod(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    "a reservation": pod(meta={"labels": {RESERVATION_LABEL: "plain"}}),
    "it must not preempt": pod(preemptionPolicy="Never"),
    "the scheduler preempts for it": pod(status={"nominatedNodeName": "node-1"}),
    "an absurd number": pod(gpus="100000"),
    "absurdly many claims": pod(resourceClaims=[{"name": f"c{i}", "resourceClaimName": "x"} for i in range(99)]),
}


@pytest.mark.parametrize("payload", WAITING.values(), ids=WAITING.keys())
def test_a_pod_that_waits_for_gpus(payload: dict[str, Any]) -> None:
    state = parse_unplaced_pod(payload)
    assert (state.namespace, state.name, state.uid, state.priority) == ("others", "plain", "u", 5)
    assert state.request is not None
    assert state.request.gpus == int(payload["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"])


@pytest.mark.parametrize("payload", OTHERS.values(), ids=OTHERS.keys())
def test_a_pod_that_no_reservation_helps(payload: dict[str, Any]) -> None:
    assert parse_unplaced_pod(payload).request is None


def test_the_claims_of_a_pod_by_their_names_in_the_namespace() -> None:
    references = [{"name": "own", "resourceClaimTemplateName": "t"}, {"name": "shared", "resourceClaimName": "s"}]
    payload = pod(gpus="", resourceClaims=references)
    payload["status"]["resourceClaimStatuses"] = [{"name": "own", "resourceClaimName": "plain-own-x7"}]
    state = parse_unplaced_pod(payload)
    assert state.request is not None
    assert (state.request.gpus, state.request.claims) == (0, ("plain-own-x7", "s"))


def test_what_decides_about_its_nodes_is_kept() -> None:
    chosen = {"nodeSelector": {"pool": "a"}, "tolerations": [{"operator": "Exists"}]}
    state = parse_unplaced_pod(pod(**chosen))
    assert state.request is not None
    assert state.request.spec == chosen


def test_a_pod_with_an_invalid_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nvidia\.com/gpu='many'"):
        parse_unplaced_pod(pod(gpus="many"))
