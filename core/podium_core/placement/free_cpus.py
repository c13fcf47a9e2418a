"""Free CPUs of a node: its allocatable CPUs minus what its pods request, as kube-scheduler counts them.

The extender (from watches) and `podium explain pod` (from lists) use it. Each pod is reduced to its node, a number
and, for a few pods, affinity terms about other pods: a cluster may have 150,000 pods.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import Field

from podium_core.placement.affinity import AffinityTerm, terms_about_other_pods
from podium_core.placement.requests import requests_of
from podium_core.schema.pod import Affinity, ApiModel, PodRequests
from podium_core.schema.quantity import to_thousandths


class CpuRequest(NamedTuple):
    """CPU request of a pod on a node, in thousandths. A tuple: equal pods share one."""

    node: str
    cpu: int
    affinity_terms: tuple[AffinityTerm, ...] = ()


class NodeCpus(NamedTuple):
    """CPUs of a node that pods may request, in thousandths.

    `prefer_no_schedule`: it has a taint PreferNoSchedule.
    """

    cpu: int
    prefer_no_schedule: bool = False


class _Spec(PodRequests):
    node_name: str = ""
    affinity: Affinity = Field(default_factory=Affinity)


class _Meta(ApiModel):
    namespace: str = ""


class _Pod(ApiModel):
    metadata: _Meta = Field(default_factory=_Meta)
    spec: _Spec


class _Allocatable(ApiModel):
    cpu: str | int | float = 0


class _NodeStatus(ApiModel):
    allocatable: _Allocatable = Field(default_factory=_Allocatable)


class _Taint(ApiModel):
    effect: str = ""


class _NodeSpec(ApiModel):
    taints: list[_Taint] = Field(default_factory=list)


class _Node(ApiModel):
    spec: _NodeSpec = Field(default_factory=_NodeSpec)
    status: _NodeStatus = Field(default_factory=_NodeStatus)


def others_selector(scheduler: str) -> str:
    """Return the field selector of all running pods on nodes, except those of this scheduler."""
    return f"spec.schedulerName!={scheduler},spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def cpu_request_of(payload: Mapping[str, Any]) -> CpuRequest:
    """Return the CPU request of a pod.

    Raises ValueError if the payload is not a pod or requests an invalid quantity.
    """
    pod = _Pod.model_validate(payload)
    terms = terms_about_other_pods(pod.metadata.namespace, pod.spec.affinity)
    return _shared(pod.spec.node_name, requests_of(pod.spec).get("cpu", 0), terms)


def node_cpus_of(payload: Mapping[str, Any]) -> NodeCpus:
    """Return the CPUs of a node. Raises ValueError if the payload is not a node or has no number of CPUs."""
    node = _Node.model_validate(payload)
    prefer_no_schedule = any(taint.effect == "PreferNoSchedule" for taint in node.spec.taints)
    return NodeCpus(to_thousandths(str(node.status.allocatable.cpu)), prefer_no_schedule)


@lru_cache(maxsize=100_000)
def _shared(node: str, cpu: int, terms: tuple[AffinityTerm, ...]) -> CpuRequest:
    return CpuRequest(sys.intern(node), cpu, terms)
