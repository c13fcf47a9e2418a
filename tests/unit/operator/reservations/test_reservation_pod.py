"""Reservation pod: an ordinary pod that quotas, Kueue and Pod Security `restricted` accept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from podium_core.planning.slots.gpu_reservations import Pool
from podium_operator.reservations.reservation_pod import (
    RESERVATION_LABEL,
    Manifest,
    ReservationRules,
    make_reservation_pod,
)

RULES = ReservationRules("i", "podium-reservation", "u")


def made(pool: Pool, grace: int = 60) -> Manifest:
    return make_reservation_pod("podium-reservation-1", pool, RULES, grace_seconds=grace)


def test_the_pod_requests_one_gpu_from_the_clusters_own_scheduler() -> None:
    pod = made(Pool("lab"))
    meta = pod["metadata"]
    assert (meta["name"], meta["namespace"], meta["labels"]) == (
        "podium-reservation-1",
        "lab",
        {RESERVATION_LABEL: "podium-reservation-1"},
    )
    assert [owner["kind"] for owner in meta["ownerReferences"]] == ["PriorityClass"]
    spec = pod["spec"]
    assert "schedulerName" not in spec
    assert "affinity" not in spec
    assert spec["priorityClassName"] == "podium-reservation"
    assert spec["terminationGracePeriodSeconds"] == 60
    resources = spec["containers"][0]["resources"]
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == "1"


def test_queue_and_product_use_the_labels_of_kueue_and_nvidia() -> None:
    pod = made(Pool("lab", "research", ("NVIDIA-H100", "NVIDIA-H200")))
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = terms["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression == {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100", "NVIDIA-H200"]}


def test_pod_security_restricted_admits_the_pod() -> None:
    spec = made(Pool("lab"))["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_pod_selects_nodes_with_agents() -> None:
    rules = replace(RULES, node_selector={"nvidia.com/gpu.present": "true"})
    pod = make_reservation_pod("l", Pool("lab"), rules, grace_seconds=9)
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert "nodeSelector" not in made(Pool("lab"))["spec"]


def test_the_pod_requires_the_nodes_where_it_helps() -> None:
    pod = make_reservation_pod("l", Pool("lab", "", ("H100",)), RULES, grace_seconds=9, nodes=["a", "b"])
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["matchFields"][0]["values"] for term in terms["nodeSelectorTerms"]] == [["a"], ["b"]]
    assert all(term["matchExpressions"][0]["values"] == ["H100"] for term in terms["nodeSelectorTerms"])


def test_gpus_for_one_trial_are_requested_on_one_node() -> None:
    pod = make_reservation_pod("l", Pool("lab", "", ("H100",)), RULES, grace_seconds=9, spread="together")
    affinity = pod["spec"]["affinity"]
    (pool_demand,) = affinity["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert pool_demand["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert pool_demand["podAffinityTerm"]["labelSelector"]["matchExpressions"][0]["key"] == RESERVATION_LABEL
    assert "namespaceSelector" not in pool_demand["podAffinityTerm"], "those of other tenants do not help"
    assert "nodeAffinity" in affinity, "and the product is required as before"


def test_gpus_for_several_workers_are_requested_on_different_nodes() -> None:
    affinity = make_reservation_pod("l", Pool("lab"), RULES, grace_seconds=9, spread="apart")["spec"]["affinity"]
    assert affinity.keys() == {"podAntiAffinity"}
    assert affinity["podAntiAffinity"].keys() == {"preferredDuringSchedulingIgnoredDuringExecution"}


def test_a_grace_period_below_one_second_is_refused() -> None:
    with pytest.raises(ValueError, match="grace_seconds must be at least 1"):
        made(Pool("lab"), grace=0)
