"""Pods that kube-scheduler could not place because no GPU is free, parsed once. The watch caches use it.

A pod counts if its condition PodScheduled has the reason Unschedulable and names a claim or `nvidia.com/gpu`. Where
GPUs are dynamic resources, kube-scheduler reports "cannot allocate all claims" for nodes that only lack devices, also
for pods that request `nvidia.com/gpu`. A pod does not count if the scheduler is already preempting for it, or if it
must not preempt (`preemptionPolicy: Never`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from podium_core.placement.requests import requests_of
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_core.schema.pod import Pod
from podium_operator.reservations.reservation_pod import GPU_RESOURCE, RESERVATION_LABEL

MAX_GPUS = 1024  # of one pod; a pod that requests more is not helped
MAX_CLAIMS = 32
_NODES = re.compile(r"\d+/\d+ nodes are available")  # kube-scheduler's messages begin like this
_LACKS_GPUS = re.compile(r"\bclaims?\b|" + re.escape(GPU_RESOURCE), re.IGNORECASE)


class _Condition(StatusModel):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _ClaimReference(StatusModel):
    name: str
    resource_claim_name: str = ""


class _Spec(StatusModel):
    priority: int = 0
    preemption_policy: str = "PreemptLowerPriority"
    resource_claims: list[_ClaimReference] = Field(default_factory=list)


class _Status(StatusModel):
    nominated_node_name: str = ""
    conditions: list[_Condition] = Field(default_factory=list)
    resource_claim_statuses: list[_ClaimReference] = Field(default_factory=list)


class _Pod(StatusModel):
    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What a pod that waits for GPUs requests.

    `gpus`: number of `nvidia.com/gpu`; `claims`: names of its ResourceClaims; `spec`: its spec, to compare with nodes.
    """

    gpus: int
    claims: tuple[str, ...]
    pod: Pod
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnplacedPodState:
    """A pod without a node. `request`: None unless it waits for nothing but GPUs that it may preempt."""

    namespace: str
    name: str
    uid: str
    priority: int = 0
    request: GpuRequest | None = None


def parse_unplaced_pod(payload: Mapping[str, Any]) -> UnplacedPodState:
    """Return the state of a pod without a node. Raises ValueError."""
    pod = _Pod.model_validate(payload)
    meta, spec, status = pod.metadata, pod.spec, pod.status
    waits = next((one for one in status.conditions if one.type == "PodScheduled"), None)
    helpable = (
        meta.deletion_timestamp is None
        and RESERVATION_LABEL not in meta.labels
        and spec.preemption_policy != "Never"
        and not status.nominated_node_name
        and waits is not None
        and _lacks_gpus(waits)
    )
    request = _request(pod, payload) if helpable else None
    return UnplacedPodState(meta.namespace, meta.name, meta.uid, spec.priority, request)


def _lacks_gpus(condition: _Condition) -> bool:
    """Return whether the scheduler found no GPU. The message of a scheduler with other words is not interpreted."""
    if condition.status != "False" or condition.reason != "Unschedulable":
        return False
    return not _NODES.match(condition.message) or bool(_LACKS_GPUS.search(condition.message))


def _request(pod: _Pod, payload: Mapping[str, Any]) -> GpuRequest | None:
    """Return the request for GPUs; None if there is none, or more than one pod can have."""
    whole = Pod.model_validate(payload)
    gpus = requests_of(whole.spec).get(GPU_RESOURCE, 0) // 1000
    generated = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    names = (one.resource_claim_name or generated.get(one.name, "") for one in pod.spec.resource_claims)
    claims = tuple(filter(None, names))
    if gpus > MAX_GPUS or len(claims) > MAX_CLAIMS or not (gpus or claims):
        return None
    keys = ("nodeSelector", "affinity", "tolerations")
    return GpuRequest(gpus, claims, whole, {key: payload["spec"][key] for key in keys if payload["spec"].get(key)})
