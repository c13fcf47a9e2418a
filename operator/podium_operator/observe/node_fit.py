"""Whether a node would take a trial's next pod: what kube-scheduler would ask of it, looked at before the pod that the
trial has now is given up for that; and whether room is what a pod without a node wants. Pure; used by `leveller` with
what the API server says of the node and its pods, and by `snapshot`.

What is not looked at (a volume bound to a zone, other pods' affinities) is left to the scheduler, which may put the pod
back: then the trial is moved ever more seldom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from podium_core.domain.observe import PodFacts
from podium_core.placement.fit import FULL
from podium_core.placement.needs import depends_on_other_pods
from podium_core.placement.requests import requests_of
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_core.schema.pod import ApiModel, Pod
from podium_core.schema.quantity import to_thousandths

SHARES = "podium.dev/"  # counted by the planner, GPU by GPU
_BARS = ("NoSchedule", "NoExecute")
# of a node that would take the pod if others were gone: by kube-scheduler, and by our extender's filter
_FULL = ("Insufficient ", "Too many pods", *(f"{code}: " for code in sorted(FULL)))


class Taint(StatusModel):
    key: str
    value: str = ""
    effect: str = ""


class Toleration(ApiModel):
    """As a user wrote it, and the API server would take it."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class _NodeSpec(StatusModel):
    unschedulable: bool = False
    taints: list[Taint] = Field(default_factory=list)


class _NodeStatus(StatusModel):
    allocatable: dict[str, str] = Field(default_factory=dict)


class Node(StatusModel):
    """What of a Node object decides; one that is not ready bears a taint."""

    metadata: ObjectMeta
    spec: _NodeSpec = Field(default_factory=_NodeSpec)
    status: _NodeStatus = Field(default_factory=_NodeStatus)


def wants_room(pod: PodFacts) -> bool:
    """Whether it has no node, on some of them for want of room."""
    return pod.node is None and any(words in pod.unschedulable for words in _FULL)


def no_room(node: Node, there: Iterable[Pod], pod: Pod, template: Mapping[str, Any]) -> str | None:
    """Why the node would not take another pod like `pod`; None: it would. `there`: the pods on it that have not ended;
    `template`: the spec that the user wrote, since the pod may bear our own wishes for its present node.
    """
    name = node.metadata.name
    if node.spec.unschedulable:
        return f"node {name} is cordoned"
    labels = node.metadata.labels
    for key, value in (template.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return f"nodeSelector wants {key}={value}, which node {name} is not"
    affinity = (template.get("affinity") or {}).get("nodeAffinity") or {}
    # claims do not matter: those of trials are shared among nodes
    if "requiredDuringSchedulingIgnoredDuringExecution" in affinity or depends_on_other_pods(pod):
        return "its template says where it may be by required affinity, other pods, or a port of the node"
    tolerations = [Toleration.model_validate(one) for one in template.get("tolerations") or []]
    for taint in node.spec.taints:
        if taint.effect in _BARS and not any(one.tolerates(taint) for one in tolerations):
            return f"node {name} has the taint {taint.key}, which the template does not tolerate"
    return _short(node, there, pod)


def _short(node: Node, there: Iterable[Pod], pod: Pod) -> str | None:
    try:
        needs = requests_of(pod.spec)
        taken: dict[str, int] = {"pods": 0}
        for other in there:
            taken["pods"] += 1000
            for resource, amount in requests_of(other.spec).items():
                taken[resource] = taken.get(resource, 0) + amount
    except ValueError as error:
        return str(error)
    for resource, amount in {**needs, "pods": 1000}.items():
        if resource.startswith(SHARES):
            continue
        has = to_thousandths(node.status.allocatable.get(resource, "0"))
        if taken.get(resource, 0) + amount > has:
            left = max(0, has - taken.get(resource, 0)) / 1000
            return f"node {node.metadata.name} has {left:g} {resource} left, {amount / 1000:g} are needed"
    return None
