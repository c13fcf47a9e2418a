"""The placeholder of a GPU lease: an ordinary pod that quota, Kueue and Pod Security `restricted` take as it is."""

from __future__ import annotations

import pytest

from podium_core.planning.gpu_reservations import Pool
from podium_operator.reservations.reservation_pod import LEASE_LABEL, Manifest, make_lease_pod


def made(pool: Pool, grace: int = 60) -> Manifest:
    return make_lease_pod(
        "podium-reservation-1", pool, image="i", priority_class="podium-reservation", owner_uid="u", grace_seconds=grace
    )


def test_it_asks_for_one_gpu_of_the_clusters_own_scheduler() -> None:
    pod = made(Pool("lab"))
    meta = pod["metadata"]
    assert (meta["name"], meta["namespace"], meta["labels"]) == (
        "podium-reservation-1",
        "lab",
        {LEASE_LABEL: "podium-reservation-1"},
    )
    assert [owner["kind"] for owner in meta["ownerReferences"]] == ["PriorityClass"]
    spec = pod["spec"]
    assert "schedulerName" not in spec
    assert "affinity" not in spec
    assert spec["priorityClassName"] == "podium-reservation"
    assert spec["terminationGracePeriodSeconds"] == 60
    resources = spec["containers"][0]["resources"]
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == "1"


def test_queue_and_product_are_said_in_the_words_of_those_who_read_them() -> None:
    pod = made(Pool("lab", "research", ("NVIDIA-H100", "NVIDIA-H200")))
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = terms["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression == {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100", "NVIDIA-H200"]}


def test_pod_security_restricted_admits_it() -> None:
    spec = made(Pool("lab"))["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_it_goes_where_agents_are() -> None:
    how = {"image": "i", "priority_class": "c", "owner_uid": "u", "grace_seconds": 9}
    pod = make_lease_pod("l", Pool("lab"), node_selector={"nvidia.com/gpu.present": "true"}, **how)
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert "nodeSelector" not in made(Pool("lab"))["spec"]


def test_where_it_is_of_use_alone() -> None:
    how = {"image": "i", "priority_class": "c", "owner_uid": "u", "grace_seconds": 9, "nodes": ["a", "b"]}
    pod = make_lease_pod("l", Pool("lab", "", ("H100",)), **how)
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["matchFields"][0]["values"] for term in terms["nodeSelectorTerms"]] == [["a"], ["b"]]
    assert all(term["matchExpressions"][0]["values"] == ["H100"] for term in terms["nodeSelectorTerms"])


def test_gpus_for_one_trial_are_asked_for_on_one_node() -> None:
    how = {"image": "i", "priority_class": "c", "owner_uid": "u", "grace_seconds": 9}
    affinity = make_lease_pod("l", Pool("lab", "", ("H100",)), together=True, **how)["spec"]["affinity"]
    (wish,) = affinity["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert wish["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert wish["podAffinityTerm"]["labelSelector"]["matchExpressions"][0]["key"] == LEASE_LABEL
    assert "namespaceSelector" not in wish["podAffinityTerm"], "other tenants' are of no use to it"
    assert "nodeAffinity" in affinity, "and the product is wanted as before"


def test_trials_need_time_to_leave() -> None:
    with pytest.raises(ValueError, match="grace_seconds=0"):
        made(Pool("lab"), grace=0)
