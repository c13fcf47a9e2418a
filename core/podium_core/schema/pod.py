"""The parts of a pod that placement reads, in camelCase as in the Kubernetes API.

Go writes `null` for an empty list or map; it is read as absent. The extender and `podium explain pod` use it.
"""

from __future__ import annotations

from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel


class ApiModel(BaseModel):
    """A part of a Kubernetes object: unknown fields are ignored, and null means absent."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class PodMeta(ApiModel):
    """Metadata of a pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    deletion_timestamp: AwareDatetime | None = None


class EnvVar(ApiModel):
    """An environment variable of a container."""

    name: str
    value: str = ""


class Resources(ApiModel):
    """Resource requests. For an extended resource with only a limit, the API server sets the request."""

    requests: dict[str, str | int | float] = Field(default_factory=dict)


class Port(ApiModel):
    """A port of a container."""

    host_port: int = 0


class ContainerRequests(ApiModel):
    """The fields of a container that decide what its pod requests."""

    name: str = ""
    resources: Resources = Field(default_factory=Resources)
    restart_policy: str = ""


class Container(ContainerRequests):
    """A container with its environment and ports."""

    env: list[EnvVar] = Field(default_factory=list)
    ports: list[Port] = Field(default_factory=list)


class Affinity(ApiModel):
    """Affinities of a pod."""

    node_affinity: dict[str, Any] | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class PodRequests(ApiModel):
    """The fields of a pod's spec that decide what it requests; `resources` belongs to the pod as a whole."""

    containers: tuple[ContainerRequests, ...] = ()
    init_containers: tuple[ContainerRequests, ...] = ()
    resources: Resources = Field(default_factory=Resources)
    overhead: dict[str, str | int | float] = Field(default_factory=dict)


class PodSpec(PodRequests):
    """Spec of a pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduling_gates: list[dict[str, Any]] = Field(default_factory=list)
    scheduler_name: str = ""
    priority: int = 0
    affinity: Affinity = Field(default_factory=Affinity)
    topology_spread_constraints: list[dict[str, Any]] = Field(default_factory=list)
    volumes: list[dict[str, Any]] = Field(default_factory=list)
    resource_claims: list[dict[str, Any]] = Field(default_factory=list)


class Running(ApiModel):
    """State of a running container."""

    started_at: AwareDatetime | None = None


class ContainerState(ApiModel):
    """State of a container."""

    running: Running | None = None


class ContainerStatus(ApiModel):
    """Status of a container."""

    name: str = ""
    state: ContainerState = Field(default_factory=ContainerState)


class PodStatus(ApiModel):
    """Status of a pod."""

    phase: str = "Pending"
    container_statuses: list[ContainerStatus] = Field(default_factory=list)


class Pod(ApiModel):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec
    status: PodStatus = Field(default_factory=PodStatus)
