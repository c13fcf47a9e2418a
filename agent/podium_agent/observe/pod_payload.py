"""Payload of a pod, as the API has it: the fields that the agent reads of a trial's pod."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from podium_core.schema.base import ObjectMeta, OwnerReference, StatusModel


class PodMeta(ObjectMeta):
    """Metadata of a pod."""

    owner_references: list[OwnerReference] = Field(default_factory=list)
    deletion_grace_period_seconds: float | None = None


class Variable(StatusModel):
    """An environment variable."""

    name: str
    value: str = ""


class Resources(StatusModel):
    """Resources of a container."""

    requests: dict[str, str] = Field(default_factory=dict)


class ContainerSpec(StatusModel):
    """A container as it is asked for."""

    name: str
    image: str = ""
    env: list[Variable] = Field(default_factory=list)
    resources: Resources = Field(default_factory=Resources)


class Volume(StatusModel):
    """A volume; `empty_dir` is None for another kind of volume."""

    name: str
    empty_dir: dict[str, Any] | None = None


class PodSpec(StatusModel):
    """Spec of a pod."""

    termination_grace_period_seconds: float = 30.0
    containers: list[ContainerSpec] = Field(default_factory=list)
    init_containers: list[ContainerSpec] = Field(default_factory=list)
    volumes: list[Volume] = Field(default_factory=list)
    host_network: bool = False


class Waiting(StatusModel):
    """State of a container that waits."""

    reason: str = ""


class Terminated(StatusModel):
    """State of a container that has ended."""

    exit_code: int = 0


class Running(StatusModel):
    """State of a container that runs."""

    started_at: datetime | None = None


class ContainerState(StatusModel):
    """State of a container: at most one of the three is there."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(StatusModel):
    """A container as the kubelet reports it."""

    name: str
    container_id: str = Field("", alias="containerID")
    state: ContainerState = Field(default_factory=ContainerState)


class ReportedCondition(StatusModel):
    """A condition of a pod."""

    type: str
    status: str
    reason: str = ""


class ReportedStatus(StatusModel):
    """Status of a pod."""

    phase: str = "Pending"
    reason: str = ""
    pod_ip: str = Field("", alias="podIP")
    conditions: list[ReportedCondition] = Field(default_factory=list)
    container_statuses: list[ContainerStatus] = Field(default_factory=list)
    init_container_statuses: list[ContainerStatus] = Field(default_factory=list)


class PodPayload(StatusModel):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec = Field(default_factory=PodSpec)
    status: ReportedStatus = Field(default_factory=ReportedStatus)
