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

from podium.placement.affinity import AffinityTerm, terms_toward_others
from podium.schema.pod import Affinity, ApiModel
from podium.schema.quantity import to_thousandths


class Seat(NamedTuple):
    """A pod on a node: thousandths of a CPU that it requests there. A tuple: pods that are alike share one."""

    node: str
    cpu: int
    terms: tuple[AffinityTerm, ...] = ()


class Machine(NamedTuple):
    """A node: thousandths of a CPU that pods may request there. `shunned`: it has a taint `PreferNoSchedule`."""

    cpu: int
    shunned: bool = False


class _Amounts(ApiModel):
    cpu: str | int | float = 0


class _Resources(ApiModel):
    requests: _Amounts = Field(default_factory=_Amounts)


class _Container(ApiModel):
    resources: _Resources = Field(default_factory=_Resources)
    restart_policy: str = ""

    @property
    def cpu(self) -> int:
        return to_thousandths(str(self.resources.requests.cpu))


class _Spec(ApiModel):
    node_name: str = ""
    affinity: Affinity = Field(default_factory=Affinity)
    containers: list[_Container] = Field(default_factory=list)
    init_containers: list[_Container] = Field(default_factory=list)
    overhead: _Amounts = Field(default_factory=_Amounts)


class _Meta(ApiModel):
    namespace: str = ""


class _Pod(ApiModel):
    metadata: _Meta = Field(default_factory=_Meta)
    spec: _Spec


class _NodeStatus(ApiModel):
    allocatable: _Amounts = Field(default_factory=_Amounts)


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


def seat_of(payload: Mapping[str, Any]) -> Seat:
    """Raises ValueError for what is no pod, or requests no number of CPUs."""
    pod = _Pod.model_validate(payload)
    spec = pod.spec
    terms = terms_toward_others(pod.metadata.namespace, spec.affinity)
    return _shared(spec.node_name, _requested(spec) + to_thousandths(str(spec.overhead.cpu)), terms)


def machine_of(payload: Mapping[str, Any]) -> Machine:
    """Raises ValueError for what is no node, or has no number of CPUs."""
    node = _Node.model_validate(payload)
    shunned = any(taint.effect == "PreferNoSchedule" for taint in node.spec.taints)
    return Machine(to_thousandths(str(node.status.allocatable.cpu)), shunned)


def _requested(spec: _Spec) -> int:
    """All that run together, or any one init container with the sidecars that were started before it."""
    sidecars = most = 0
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars += container.cpu
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + container.cpu)
    return max(most, sidecars + sum(container.cpu for container in spec.containers))


@lru_cache(maxsize=100_000)
def _shared(node: str, cpu: int, terms: tuple[AffinityTerm, ...]) -> Seat:
    return Seat(sys.intern(node), cpu, terms)
