"""Facts about containers and nodes, parsed from the API server's objects, as `eligibility` needs them."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from podium_agent.migration.eligibility import ContainerFacts, NodeRuntime
from podium_agent.migration.open_files import OpenFiles
from podium_core.schema.base import ObjectMeta, StatusModel


class _Volume(StatusModel):
    """A volume, which the API writes as `{"name": ..., KIND: {...}}`."""

    name: str
    kind: str

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: dict[str, Any]) -> dict[str, str]:
        return {"name": value["name"], "kind": next((key for key in value if key != "name"), "emptyDir")}


class _Mount(StatusModel):
    name: str
    mount_path: str


class _Container(StatusModel):
    name: str
    restart_policy: str = ""
    volume_mounts: list[_Mount] = Field(default_factory=list)


class _Spec(StatusModel):
    node_name: str = ""
    containers: list[_Container] = Field(default_factory=list)
    init_containers: list[_Container] = Field(default_factory=list)
    volumes: list[_Volume] = Field(default_factory=list)
    host_network: bool = False
    host_pid: bool = Field(False, alias="hostPID")
    host_ipc: bool = Field(False, alias="hostIPC")


class _Running(StatusModel):
    name: str
    container_id: str = Field("", alias="containerID")
    image_id: str = Field("", alias="imageID")


class _Status(StatusModel):
    container_statuses: list[_Running] = Field(default_factory=list)


class Pod(StatusModel):
    """A pod, of a trial or not."""

    metadata: ObjectMeta
    spec: _Spec
    status: _Status = Field(default_factory=_Status)

    def container_id(self, name: str) -> str:
        """Return the ID of a container; empty if it never ran."""
        ids = (one.container_id for one in self.status.container_statuses if one.name == name)
        return next(ids, "").rpartition("/")[2]

    def container_facts(self, name: str, open_files: OpenFiles, *, off_gpu: bool) -> ContainerFacts:
        """Return the facts about a container; sidecar init containers count as containers.

        Of the volumes, only those count that a container mounts; that of the gate has no more use once it has ended.
        """
        sidecars = [one for one in self.spec.init_containers if one.restart_policy == "Always"]
        running = [*self.spec.containers, *sidecars]
        mounted = {mount.name for one in running for mount in one.volume_mounts}
        images = (one.image_id for one in self.status.container_statuses if one.name == name)
        mounts = (mount.mount_path for one in self.spec.containers if one.name == name for mount in one.volume_mounts)
        return ContainerFacts(
            tuple(one.name for one in running),
            tuple((volume.name, volume.kind) for volume in self.spec.volumes if volume.name in mounted),
            next(images, ""),
            self.spec.host_network or self.spec.host_pid or self.spec.host_ipc,
            tuple(mounts),
            open_files,
            off_gpu,
        )


class _Info(StatusModel):
    container_runtime_version: str = ""
    architecture: str = ""


class _Address(StatusModel):
    type: str
    address: str


class _KubeletEndpoint(StatusModel):
    port: int = Field(10250, alias="Port")  # the API writes it in upper case


class _Endpoints(StatusModel):
    kubelet_endpoint: _KubeletEndpoint = Field(default_factory=_KubeletEndpoint)


class _NodeStatus(StatusModel):
    node_info: _Info = Field(default_factory=_Info)
    addresses: list[_Address] = Field(default_factory=list)
    daemon_endpoints: _Endpoints = Field(default_factory=_Endpoints)


class NodeAddress(StatusModel):
    """A node and the address of its kubelet."""

    metadata: ObjectMeta
    status: _NodeStatus = Field(default_factory=_NodeStatus)

    @property
    def address(self) -> str:
        """Internal IP address of the node; empty if it reports none."""
        return next((one.address for one in self.status.addresses if one.type == "InternalIP"), "")

    @property
    def port(self) -> int:
        """Port of the kubelet."""
        return self.status.daemon_endpoints.kubelet_endpoint.port

    def node_facts(self, restore_enabled: bool = False) -> NodeRuntime:
        """Return the facts about the node."""
        info = self.status.node_info
        return NodeRuntime(self.metadata.name, info.container_runtime_version, info.architecture, restore_enabled)
