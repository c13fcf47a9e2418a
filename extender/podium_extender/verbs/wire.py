"""The HTTP extender's messages as kube-scheduler sends and expects them (k8s.io/kube-scheduler/extender/v1).

The protocol's own keys are Go names (`Pod`, `NodeNames`). The Pod and Node objects inside use the API's camelCase.
Unknown fields are ignored. Go's `null` for an empty list or map means an empty one.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, model_validator
from pydantic.alias_generators import to_pascal

from podium_core.schema.pod import ApiModel, Pod

M = TypeVar("M", bound=BaseModel)
SHOWN_ERRORS = 5


class RequestError(Exception):
    """A request that cannot be served: a status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def parse(body: bytes, model: type[M]) -> M:
    """Parse a body; raise RequestError (400) with the names of the invalid fields."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        errors = [f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in error.errors()]
        more = f"; and {len(errors) - SHOWN_ERRORS} more" if len(errors) > SHOWN_ERRORS else ""
        raise RequestError(400, "; ".join(errors[:SHOWN_ERRORS]) + more) from error


class GoModel(ApiModel):
    """A message of the protocol, with keys in Go's spelling; null means absent."""

    model_config = ConfigDict(alias_generator=to_pascal)


class NodeMeta(BaseModel):
    """Metadata of a node object."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str


class WireNode(BaseModel):
    """A node object with all its fields: in the full form the response must contain the nodes that passed."""

    model_config = ConfigDict(extra="allow", frozen=True)

    metadata: NodeMeta


class NodeList(BaseModel):
    """Node objects of the full form."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    metadata: dict[str, Any] = Field(default_factory=dict)
    items: list[WireNode] = Field(default_factory=list)


class ExtenderArgs(GoModel):
    """The request of filter and prioritize: a pod, and nodes by name or as whole objects.

    A scheduler that is configured as not cache-capable sends whole objects.
    """

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
        """The names of the nodes, from either form."""
        if self.node_names is not None:
            return self.node_names
        return [node.metadata.name for node in self.nodes.items] if self.nodes else []


class FilterResult(GoModel):
    """The response of filter; preemption may help `FailedNodes`, but not `FailedAndUnresolvableNodes`."""

    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = Field(default_factory=dict)
    failed_and_unresolvable_nodes: dict[str, str] = Field(default_factory=dict)
    error: str = ""


class HostPriority(GoModel):
    """The score of one node; `response_rows` writes the response of prioritize."""

    host: str
    score: int = Field(ge=0, le=10)


class HostPriorityList(RootModel[list[HostPriority]]):
    """The response of prioritize, in the order of the request; an omitted node has the score 0."""


class ErrorResponse(GoModel):
    """The body of every response with a status other than 200."""

    error: str


class MetaPod(GoModel):
    """A pod by its uid."""

    uid: str = Field(alias="UID")


class MetaVictims(GoModel):
    """Victims by uid, in the request of a cache-capable scheduler and in every response."""

    pods: list[MetaPod] = Field(default_factory=list)
    num_pdb_violations: int = Field(0, alias="NumPDBViolations")


class Victims(GoModel):
    """Victims as whole pods."""

    pods: list[Pod] = Field(default_factory=list)
    num_pdb_violations: int = Field(0, alias="NumPDBViolations")


class PreemptArgs(GoModel):
    """The request of preempt: for each node the pods to delete for the preemptor, in one of two forms."""

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
        """The names of the proposed nodes."""
        return list(self.node_name_to_victims or self.node_name_to_meta_victims or ())


class PreemptResult(GoModel):
    """The response of preempt, with at most one node; without a node the pod waits.

    The scheduler would choose among several nodes by its own criteria.
    """

    node_name_to_meta_victims: dict[str, MetaVictims] = Field(default_factory=dict)
