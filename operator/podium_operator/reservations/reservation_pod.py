"""The placeholder pod of a GPU lease: an ordinary pod that requests one GPU and does nothing. Pure; used by
`leasing`, read back by `seen_lease`.

The cluster's own scheduler places it, in the tenant's namespace, so quota, Kueue and autoscalers see what they know.
Its priority is below every other pod's: a pod that never heard of Podium takes the GPU by preempting it. Told to end,
it stays until the agent has taken the trials off the GPU and ends it, or until its grace period is over: pid 1 of a
container ignores a SIGTERM for which it has no handler, so nothing has to be said to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from podium_core.planning.gpu_reservations import Pool

Manifest = dict[str, Any]

LEASE_LABEL = "podium.dev/gpu-reservation"
PRODUCTS_ANNOTATION = "podium.dev/gpu-products"
UNNEEDED_ANNOTATION = "podium.dev/unneeded-since"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRODUCT_LABEL = "nvidia.com/gpu.product"  # of nodes, by NVIDIA's feature discovery
GPU_RESOURCE = "nvidia.com/gpu"
_BESIDE_OTHERS: Manifest = {  # no more than a wish: where no node has room for all, some is better than none
    "weight": 100,
    "podAffinityTerm": {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": [{"key": LEASE_LABEL, "operator": "Exists"}]},
    },
}


def make_lease_pod(
    name: str,
    pool: Pool,
    *,
    image: str,
    priority_class: str,
    owner_uid: str,
    grace_seconds: int,
    node_selector: Mapping[str, str] = MappingProxyType({}),
    nodes: Sequence[str] = (),
    together: bool = False,
) -> Manifest:
    """`grace_seconds`: the longest that a trial of the pool may take to be suspended or to save; `owner_uid`: of the
    PriorityClass, whose end is the pod's; `node_selector`: of nodes with an agent; `nodes`: where alone it is of use,
    empty: anywhere; `together`: rather where others of the namespace are. Admitted by Pod Security `restricted`. Raises
    ValueError for a grace period that leaves no time.
    """
    if grace_seconds < 1:
        raise ValueError(f"grace_seconds={grace_seconds}: trials on the GPU need at least a second to leave it")
    labels = {LEASE_LABEL: name} | ({QUEUE_LABEL: pool.queue} if pool.queue else {})
    spec: Manifest = {
        "restartPolicy": "Never",
        "priorityClassName": priority_class,
        "terminationGracePeriodSeconds": grace_seconds,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "lease",
                "image": image,
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
    if node_selector:
        spec["nodeSelector"] = dict(node_selector)
    affinity: Manifest = {}
    if pool.products or nodes:
        terms = {"nodeSelectorTerms": _terms(pool.products, nodes)}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    if together:
        affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [_BESIDE_OTHERS]}
    if affinity:
        spec["affinity"] = affinity
    owner = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "name": priority_class,
        "uid": owner_uid,
    }
    about: Manifest = {"name": name, "namespace": pool.namespace, "labels": labels, "ownerReferences": [owner]}
    if pool.products:
        about["annotations"] = {PRODUCTS_ANNOTATION: ",".join(pool.products)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def _terms(products: Sequence[str], nodes: Sequence[str]) -> list[Manifest]:
    """One of them must hold; a field takes one value."""
    product = [{"key": PRODUCT_LABEL, "operator": "In", "values": list(products)}] if products else []
    if not nodes:
        return [{"matchExpressions": product}]
    names = ([{"key": "metadata.name", "operator": "In", "values": [node]}] for node in nodes)
    return [{"matchFields": name, **({"matchExpressions": product} if product else {})} for name in names]
