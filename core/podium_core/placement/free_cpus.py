"""How many CPUs of a node no pod requests: what a node has (Node.status.allocatable), less what its pods request, as
kube-scheduler counts it.

Used by the extender (`room`, from watches) and by `podium explain pod` (from lists). A pod is reduced to its node, a
number, and what few pods have, affinities toward others, where it is read: a cluster may have 150,000 of them.
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
    """A pod on a node: thousandths of a CPU that it requests there. A tuple: pods that are alike share one."""

    node: str
    cpu: int
    terms: tuple[AffinityTerm, ...] = ()


class NodeCpus(NamedTuple):
    """A node: thousandths of a CPU that pods may request there. `shunned`: it has a taint `PreferNoSchedule`."""

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
    """Field selector of all pods on nodes that are not over, but for those of this scheduler."""
    return f"spec.schedulerName!={scheduler},spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def cpu_request_of(payload: Mapping[str, Any]) -> CpuRequest:
    """Raises ValueError for what is no pod, or requests no quantity."""
    pod = _Pod.model_validate(payload)
    terms = terms_about_other_pods(pod.metadata.namespace, pod.spec.affinity)
    return _shared(pod.spec.node_name, requests_of(pod.spec).get("cpu", 0), terms)


def node_cpus_of(payload: Mapping[str, Any]) -> NodeCpus:
    """Raises ValueError for what is no node, or has no number of CPUs."""
    node = _Node.model_validate(payload)
    shunned = any(taint.effect == "PreferNoSchedule" for taint in node.spec.taints)
    return NodeCpus(to_thousandths(str(node.status.allocatable.cpu)), shunned)


@lru_cache(maxsize=100_000)
def _shared(node: str, cpu: int, terms: tuple[AffinityTerm, ...]) -> CpuRequest:
    return CpuRequest(sys.intern(node), cpu, terms)
