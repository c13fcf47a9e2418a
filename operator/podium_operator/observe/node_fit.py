"""Check whether a node would accept a trial's next pod, before the pod that the trial has now is given up.

`rebalancing` asks with what the API server reports of the node and its pods; `snapshot` asks whether an unscheduled
pod lacks capacity. Some constraints are not checked (a volume bound to a zone, other pods' affinities). The scheduler
may then place the pod back, and the trial is moved less and less often. `yielding` asks the same about a pod that
waits for a GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import Field

from podium_core.domain.observe import PodFacts
from podium_core.placement.affinity import Requirement
from podium_core.placement.fit import FULL
from podium_core.placement.needs import depends_on_other_pods
from podium_core.placement.requests import requests_of
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_core.schema.pod import ApiModel, Pod
from podium_core.schema.quantity import to_thousandths

SLOT_PREFIX = "podium.dev/"  # the planner counts these resources, GPU by GPU
_REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
# messages about a node that would accept the pod if other pods were gone: kube-scheduler's and the extender's
_CAPACITY_MESSAGES = ("Insufficient ", "Too many pods", *(f"{code}: " for code in sorted(FULL)))


class Taint(StatusModel):
    """Taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


class Toleration(ApiModel):
    """Toleration as the user wrote it and as the API server would accept it."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return True if a pod with this toleration may run on a node with `taint`."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class NodeRequirement(ApiModel):
    """Requirement of a node selector term."""

    key: str
    operator: str
    values: list[str] = Field(default_factory=list)

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet it. Raises ValueError for a comparison with what is not an integer."""
        if self.operator in ("Gt", "Lt"):
            if self.key not in labels or len(self.values) != 1:
                return False
            actual, limit = int(labels[self.key]), int(self.values[0])
            return actual > limit if self.operator == "Gt" else actual < limit
        return Requirement(self.key, self.operator, frozenset(self.values)).holds(labels)


class NodeTerm(ApiModel):
    """Term of a node selector: all of its requirements must hold."""

    match_expressions: list[NodeRequirement] = Field(default_factory=list)
    match_fields: list[NodeRequirement] = Field(default_factory=list)


class _NodeSpec(StatusModel):
    unschedulable: bool = False
    taints: list[Taint] = Field(default_factory=list)


class _NodeStatus(StatusModel):
    allocatable: dict[str, str] = Field(default_factory=dict)


class CandidateNode(StatusModel):
    """Part of a Node object that decides whether a pod fits; a node that is not ready has a taint."""

    metadata: ObjectMeta
    spec: _NodeSpec = Field(default_factory=_NodeSpec)
    status: _NodeStatus = Field(default_factory=_NodeStatus)


def lacks_capacity(pod: PodFacts) -> bool:
    """Return True if the pod has no node because some nodes lack the capacity for it."""
    return pod.node is None and any(message in pod.wait.node for message in _CAPACITY_MESSAGES)


def why_rejected(node: CandidateNode, there: Iterable[Pod], pod: Pod, template: Mapping[str, Any]) -> str | None:
    """Return why the node would not accept another pod like `pod`, or None if it would accept it.

    `there` holds the pods on the node that have not ended. `template` is the spec that the user wrote: the pod itself
    may carry Podium's own preferences for its present node.
    """
    affinity = (template.get("affinity") or {}).get("nodeAffinity") or {}
    # volume claims are not checked: those of trials are shared among nodes
    if "requiredDuringSchedulingIgnoredDuringExecution" in affinity or depends_on_other_pods(pod):
        return "the template restricts its node by required affinity, by other pods or by a host port"
    return _why_repelled(node, template) or _missing_resource(node, there, pod)


def why_rejected_without_gpus(
    node: CandidateNode, there: Iterable[Pod], pod: Pod, spec: Mapping[str, Any], gpus: Collection[str]
) -> str | None:
    """Return why the node would not accept the pod even if it had the GPUs, or None.

    `spec` is the pod's own; `gpus`: names of resources that count as GPUs. Affinities to other pods, spread and volumes
    are not checked.
    """
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or []
    name = node.metadata.name
    if terms and not any(_term_holds(NodeTerm.model_validate(term), node) for term in terms):
        return f"the pod's node affinity excludes node {name}"
    return _why_repelled(node, spec) or _missing_resource(node, there, pod, frozenset(gpus))


def _why_repelled(node: CandidateNode, spec: Mapping[str, Any]) -> str | None:
    name = node.metadata.name
    if node.spec.unschedulable:
        return f"node {name} is cordoned"
    labels = node.metadata.labels
    for key, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return f"the template requires the node label {key}={value}, which node {name} does not have"
    tolerations = [Toleration.model_validate(one) for one in spec.get("tolerations") or []]
    for taint in node.spec.taints:
        if taint.effect in _REPELLING_EFFECTS and not any(one.tolerates(taint) for one in tolerations):
            return f"node {name} has the taint {taint.key}, which the template does not tolerate"
    return None


def _term_holds(term: NodeTerm, node: CandidateNode) -> bool:
    """Return whether the node meets all requirements of the term; a term without any matches no node."""
    fields = {"metadata.name": node.metadata.name}
    return bool(term.match_expressions or term.match_fields) and all(
        [one.holds(node.metadata.labels) for one in term.match_expressions]
        + [one.holds(fields) for one in term.match_fields]
    )


def _missing_resource(
    node: CandidateNode, there: Iterable[Pod], pod: Pod, ignored: frozenset[str] = frozenset()
) -> str | None:
    """Return which resource the node lacks for another pod like `pod`, or None."""
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
        if resource.startswith(SLOT_PREFIX) or resource in ignored:
            continue
        has = to_thousandths(node.status.allocatable.get(resource, "0"))
        if taken.get(resource, 0) + amount > has:
            left = max(0, has - taken.get(resource, 0)) / 1000
            return f"node {node.metadata.name} has {left:g} {resource} left, but the pod needs {amount / 1000:g}"
    return None
