"""Create the reservation pod: an ordinary pod that requests one GPU and does nothing. Pure; used by `controller`.

The cluster's own scheduler places it in the tenant's namespace, so quotas, Kueue and autoscalers work as usual. Its
priority is below that of every other pod: any pod takes the GPU by preempting it. A pod that is being deleted remains
until the agent has taken the trials off the GPU and ends the pod. It remains at most for its grace period. It needs no
signal handling: process 1 of a container ignores a SIGTERM for which it has no handler. `reservation_state` parses the
pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from podium_core.planning.slots.gpu_reservations import Pool

Manifest = dict[str, Any]

RESERVATION_LABEL = "podium.dev/gpu-reservation"
PRODUCTS_ANNOTATION = "podium.dev/gpu-products"
UNNEEDED_ANNOTATION = "podium.dev/unneeded-since"
CHECKPOINT_ANNOTATION = "podium.dev/last-checkpoint"
COST_ANNOTATION = "podium.dev/preemption-cost"  # GPU-seconds
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRODUCT_LABEL = "nvidia.com/gpu.product"  # label of nodes, set by NVIDIA's GPU feature discovery
GPU_RESOURCE = "nvidia.com/gpu"
_OTHERS: Manifest = {  # only preferred: if no node can hold all of them, some are better than none
    "weight": 100,
    "podAffinityTerm": {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": [{"key": RESERVATION_LABEL, "operator": "Exists"}]},
    },
}
_AFFINITIES = {"together": "podAffinity", "apart": "podAntiAffinity"}


@dataclass(frozen=True, slots=True)
class ReservationRules:
    """Settings of the operator that apply to all reservation pods.

    `priority_class_uid`: of the PriorityClass, which is deleted with the pods. `node_selector`: labels of nodes.
    """

    image: str
    priority_class: str
    priority_class_uid: str
    node_selector: Mapping[str, str] = field(default_factory=dict)


def make_reservation_pod(
    name: str,
    pool: Pool,
    rules: ReservationRules,
    *,
    grace_seconds: int,
    nodes: Sequence[str] = (),
    spread: Literal["together", "apart"] | None = None,
) -> Manifest:
    """Return the manifest, which Pod Security `restricted` admits.

    Raises ValueError for `grace_seconds` below 1.

    `grace_seconds`: the longest time in which a trial of the pool is suspended or writes a checkpoint. `nodes`: the
    only nodes where the GPU helps; empty: anywhere. `spread`: prefer nodes with, or without, other reservations.
    """
    if grace_seconds < 1:
        raise ValueError(f"grace_seconds must be at least 1 (got {grace_seconds}): trials need time to release the GPU")
    labels = {RESERVATION_LABEL: name} | ({QUEUE_LABEL: pool.queue} if pool.queue else {})
    spec: Manifest = {
        "restartPolicy": "Never",
        "priorityClassName": rules.priority_class,
        "terminationGracePeriodSeconds": grace_seconds,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "reservation",
                "image": rules.image,
                "command": ["sleep", "infinity"],
                "resources": {
                    "requests": {"cpu": "1m", "memory": "8Mi", GPU_RESOURCE: "1"},
                    "limits": {"memory": "32Mi", GPU_RESOURCE: "1"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
    if rules.node_selector:
        spec["nodeSelector"] = dict(rules.node_selector)
    affinity: Manifest = {}
    if pool.products or nodes:
        terms = {"nodeSelectorTerms": _terms(pool.products, nodes)}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    if spread is not None:
        affinity[_AFFINITIES[spread]] = {"preferredDuringSchedulingIgnoredDuringExecution": [_OTHERS]}
    if affinity:
        spec["affinity"] = affinity
    owner = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "name": rules.priority_class,
        "uid": rules.priority_class_uid,
    }
    about: Manifest = {"name": name, "namespace": pool.namespace, "labels": labels, "ownerReferences": [owner]}
    if pool.products:
        about["annotations"] = {PRODUCTS_ANNOTATION: ",".join(pool.products)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def _terms(products: Sequence[str], nodes: Sequence[str]) -> list[Manifest]:
    """Return the node selector terms; one of them must hold, and matchFields takes one value."""
    product = [{"key": PRODUCT_LABEL, "operator": "In", "values": list(products)}] if products else []
    if not nodes:
        return [{"matchExpressions": product}]
    names = ([{"key": "metadata.name", "operator": "In", "values": [node]}] for node in nodes)
    return [{"matchFields": name, **({"matchExpressions": product} if product else {})} for name in names]
