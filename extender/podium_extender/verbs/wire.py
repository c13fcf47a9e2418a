"""The HTTP extender's messages as kube-scheduler sends and expects them (k8s.io/kube-scheduler/extender/v1).

The protocol's own keys are Go names (`Pod`, `NodeNames`); the Pod and Node objects inside use the API's camelCase.
Unknown fields are ignored and Go's `null` for an empty list or map is taken as such. Used by `verbs`.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, RootModel, model_validator
from pydantic.alias_generators import to_pascal

from podium_core.schema.pod import ApiModel, Pod


class GoModel(ApiModel):
    """A message of the protocol: keys as Go spells its fields, null means absent."""

    model_config = ConfigDict(alias_generator=to_pascal)


class NodeMeta(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    name: str


class Node(BaseModel):
    """Kept whole: in the full form the reply must hold the node objects that passed."""

    model_config = ConfigDict(extra="allow", frozen=True)

    metadata: NodeMeta


class NodeList(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    metadata: dict[str, Any] = Field(default_factory=dict)
    items: list[Node] = Field(default_factory=list)


class ExtenderArgs(GoModel):
    """The question of filter and prioritize: a pod, and nodes by name or (not cache-capable) as whole objects."""

    pod: Pod
    nodes: NodeList | None = None
    node_names: list[str] | None = None

    @model_validator(mode="after")
    def _some_nodes(self) -> ExtenderArgs:
        if self.nodes is None and self.node_names is None:
            raise ValueError("NodeNames or Nodes must be given: both are missing or null")
        return self

    @property
    def names(self) -> list[str]:
        if self.node_names is not None:
            return self.node_names
        return [node.metadata.name for node in self.nodes.items] if self.nodes else []


class FilterResult(GoModel):
    """`FailedNodes` may be helped by preemption, `FailedAndUnresolvableNodes` may not."""

    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = Field(default_factory=dict)
    failed_and_unresolvable_nodes: dict[str, str] = Field(default_factory=dict)
    error: str = ""


class HostPriority(GoModel):
    """Of one node; see `rows`, which writes the answer of prioritize."""

    host: str
    score: int = Field(ge=0, le=10)


class HostPriorityList(RootModel[list[HostPriority]]):
    """The answer of prioritize, in the order asked; a node that is left out has 0."""


class ErrorResponse(GoModel):
    """The body of every answer that is not 200."""

    error: str


class MetaPod(GoModel):
    uid: str = Field(alias="UID")


class MetaVictims(GoModel):
    """Victims by uid: the question of a cache-capable scheduler, and every answer."""

    pods: list[MetaPod] = Field(default_factory=list)
    num_pdb_violations: int = Field(0, alias="NumPDBViolations")


class Victims(GoModel):
    """Victims as whole pods."""

    pods: list[Pod] = Field(default_factory=list)
    num_pdb_violations: int = Field(0, alias="NumPDBViolations")


class PreemptArgs(GoModel):
    """The question of preempt: for each node the pods whose end would make room there, in one of two forms."""

    pod: Pod
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None

    @model_validator(mode="after")
    def _some_nodes(self) -> PreemptArgs:
        if self.node_name_to_victims is None and self.node_name_to_meta_victims is None:
            raise ValueError("NodeNameToMetaVictims or NodeNameToVictims must be given: both are missing or null")
        return self

    @property
    def proposed(self) -> list[str]:
        """The nodes."""
        return list(self.node_name_to_victims or self.node_name_to_meta_victims or ())


class PreemptResult(GoModel):
    """At most one node: the scheduler would else choose by its own criteria. No node: the pod waits."""

    node_name_to_meta_victims: dict[str, MetaVictims] = Field(default_factory=dict)
