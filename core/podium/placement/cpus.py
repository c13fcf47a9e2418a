"""How many CPUs of a node no pod requests: what a node has (Node.status.allocatable), less what its pods request, as
kube-scheduler counts it.

Used by the extender (`room`, from watches) and by `podium explain pod` (from lists). A pod is reduced to its node and a
number where it is read, since a cluster may have 150,000 of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import Field

from podium.schema.pod import ApiModel
from podium.schema.quantity import to_thousandths


class Seat(NamedTuple):
    """A pod on a node: thousandths of a CPU that it requests there. A tuple: pods that are alike share one."""

    node: str
    cpu: int


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
    containers: list[_Container] = Field(default_factory=list)
    init_containers: list[_Container] = Field(default_factory=list)
    overhead: _Amounts = Field(default_factory=_Amounts)


class _Pod(ApiModel):
    spec: _Spec


class _NodeStatus(ApiModel):
    allocatable: _Amounts = Field(default_factory=_Amounts)


class _Node(ApiModel):
    status: _NodeStatus = Field(default_factory=_NodeStatus)


def others_selector(scheduler: str) -> str:
    """Field selector of all pods on nodes that are not over, but for those of this scheduler."""
    return f"spec.schedulerName!={scheduler},spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def seat_of(payload: Mapping[str, Any]) -> Seat:
    """Raises ValueError for what is no pod, or requests no number of CPUs."""
    spec = _Pod.model_validate(payload).spec
    return _shared(spec.node_name, _requested(spec) + to_thousandths(str(spec.overhead.cpu)))


def allocatable(payload: Mapping[str, Any]) -> int:
    """Thousandths of a CPU that pods may request on a node."""
    return to_thousandths(str(_Node.model_validate(payload).status.allocatable.cpu))


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
def _shared(node: str, cpu: int) -> Seat:
    return Seat(sys.intern(node), cpu)
