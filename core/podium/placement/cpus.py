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

from podium.placement.requests import requests_of
from podium.schema.pod import ApiModel, PodRequests
from podium.schema.quantity import to_thousandths


class Seat(NamedTuple):
    """A pod on a node: thousandths of a CPU that it requests there. A tuple: pods that are alike share one."""

    node: str
    cpu: int


class _Spec(PodRequests):
    node_name: str = ""


class _Pod(ApiModel):
    spec: _Spec


class _Allocatable(ApiModel):
    cpu: str | int | float = 0


class _NodeStatus(ApiModel):
    allocatable: _Allocatable = Field(default_factory=_Allocatable)


class _Node(ApiModel):
    status: _NodeStatus = Field(default_factory=_NodeStatus)


def others_selector(scheduler: str) -> str:
    """Field selector of all pods on nodes that are not over, but for those of this scheduler."""
    return f"spec.schedulerName!={scheduler},spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def seat_of(payload: Mapping[str, Any]) -> Seat:
    """Raises ValueError for what is no pod, or requests no quantity."""
    spec = _Pod.model_validate(payload).spec
    return _shared(spec.node_name, requests_of(spec).get("cpu", 0))


def allocatable(payload: Mapping[str, Any]) -> int:
    """Thousandths of a CPU that pods may request on a node."""
    return to_thousandths(str(_Node.model_validate(payload).status.allocatable.cpu))


@lru_cache(maxsize=100_000)
def _shared(node: str, cpu: int) -> Seat:
    return Seat(sys.intern(node), cpu)
