"""Objects of the API server as facts of `podium doctor`: pydantic models at the edge, frozen facts inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import Field

from podium_cli.doctor.facts import (
    ComponentPod,
    CrdFacts,
    KubeletConfig,
    LocalQueue,
    NodeFacts,
    ResourceSlice,
    Webhook,
    Workload,
)
from podium_core.schema.base import StatusModel

COMPONENT, RELEASE = "app.kubernetes.io/component", "app.kubernetes.io/instance"
CHART_LABEL, CHART = "helm.sh/chart", "podium-"
POD_RESOURCES = frozenset({"*", "*/*", "pods"})
PREFIX = "PODIUM_"


class _Meta(StatusModel):
    name: str
    namespace: str = ""
    labels: dict[str, str] = Field(default_factory=dict)


class _Condition(StatusModel):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Handler(StatusModel):
    name: str = ""


class _NodeInfo(StatusModel):
    kubelet_version: str = ""
    container_runtime_version: str = ""


class _NodeStatus(StatusModel):
    allocatable: dict[str, str] = Field(default_factory=dict)
    conditions: list[_Condition] = Field(default_factory=list)
    node_info: _NodeInfo = _NodeInfo()
    runtime_handlers: list[_Handler] | None = None


class _Node(StatusModel):
    metadata: _Meta
    status: _NodeStatus = _NodeStatus()


class _Variable(StatusModel):
    name: str
    value: str | None = None


class _Container(StatusModel):
    name: str
    image: str = ""
    env: list[_Variable] = Field(default_factory=list)


class _PodSpec(StatusModel):
    containers: list[_Container] = Field(default_factory=list)
    node_name: str = ""
    priority_class_name: str = ""
    runtime_class_name: str = ""


class _Template(StatusModel):
    spec: _PodSpec = _PodSpec()


class _WorkloadSpec(StatusModel):
    replicas: int = 1
    template: _Template = _Template()


class _WorkloadStatus(StatusModel):
    ready_replicas: int = 0
    number_ready: int = 0
    desired_number_scheduled: int = 0


class _Workload(StatusModel):
    metadata: _Meta
    spec: _WorkloadSpec
    status: _WorkloadStatus = _WorkloadStatus()


class _Waiting(StatusModel):
    reason: str = ""
    message: str = ""


class _ContainerState(StatusModel):
    waiting: _Waiting | None = None


class _ContainerStatus(StatusModel):
    name: str
    state: _ContainerState = _ContainerState()


class _PodStatus(StatusModel):
    phase: str = ""
    conditions: list[_Condition] = Field(default_factory=list)
    container_statuses: list[_ContainerStatus] = Field(default_factory=list)


class _Pod(StatusModel):
    metadata: _Meta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _CrdSpec(StatusModel):
    versions: list[dict[str, Any]] = Field(default_factory=list)


class _CrdStatus(StatusModel):
    conditions: list[_Condition] = Field(default_factory=list)


class _Crd(StatusModel):
    metadata: _Meta
    spec: _CrdSpec = _CrdSpec()
    status: _CrdStatus = _CrdStatus()


class _Service(StatusModel):
    namespace: str
    name: str


class _ClientConfig(StatusModel):
    service: _Service | None = None
    url: str = ""


class _Rule(StatusModel):
    api_groups: list[str] = Field(default_factory=list)
    resources: list[str] = Field(default_factory=list)
    operations: list[str] = Field(default_factory=list)

    @property
    def intercepts_pods(self) -> bool:
        """Return whether the rule selects the creation of pods."""
        return (
            not {"", "*"}.isdisjoint(self.api_groups)
            and not POD_RESOURCES.isdisjoint(self.resources)
            and not {"CREATE", "*"}.isdisjoint(self.operations)
        )


class _Webhook(StatusModel):
    name: str
    failure_policy: str = "Fail"
    client_config: _ClientConfig = _ClientConfig()
    rules: list[_Rule] = Field(default_factory=list)


class _WebhookConfiguration(StatusModel):
    metadata: _Meta
    webhooks: list[_Webhook] = Field(default_factory=list)


class _EndpointConditions(StatusModel):
    ready: bool | None = None


class _Endpoint(StatusModel):
    conditions: _EndpointConditions = _EndpointConditions()


class _EndpointSlice(StatusModel):
    endpoints: list[_Endpoint] | None = None


class _SliceSpec(StatusModel):
    driver: str
    node_name: str = ""
    devices: list[dict[str, Any]] = Field(default_factory=list)


class _Slice(StatusModel):
    spec: _SliceSpec


class _DeviceClassSpec(StatusModel):
    extended_resource_name: str = ""


class _DeviceClass(StatusModel):
    metadata: _Meta
    spec: _DeviceClassSpec = _DeviceClassSpec()


class _QueueSpec(StatusModel):
    cluster_queue: str = ""


class _QueueStatus(StatusModel):
    conditions: list[_Condition] = Field(default_factory=list)


class _Queue(StatusModel):
    metadata: _Meta
    spec: _QueueSpec = _QueueSpec()
    status: _QueueStatus = _QueueStatus()


class _LeaseSpec(StatusModel):
    renew_time: datetime | None = None


class _Lease(StatusModel):
    metadata: _Meta
    spec: _LeaseSpec = _LeaseSpec()


class _KubeletConfig(StatusModel):
    cgroup_driver: str = "cgroupfs"
    fail_cgroup_v1: bool = Field(False, alias="failCgroupV1")
    feature_gates: dict[str, bool] = Field(default_factory=dict)


class _Configz(StatusModel):
    kubeletconfig: _KubeletConfig


def _condition(conditions: Sequence[_Condition], kind: str) -> _Condition | None:
    return next((one for one in conditions if one.type == kind), None)


def _sentence(reason: str, message: str) -> str:
    """Return reason and message as one clause of bounded length."""
    return ": ".join(filter(None, (reason, " ".join(message.split()))))[:300]


def node_facts(item: Mapping[str, Any]) -> NodeFacts:
    """Return the facts of a Node; those of its kubelet are added later."""
    node = _Node.model_validate(item)
    ready, handlers = _condition(node.status.conditions, "Ready"), node.status.runtime_handlers
    return NodeFacts(
        name=node.metadata.name,
        kubelet_version=node.status.node_info.kubelet_version,
        runtime=node.status.node_info.container_runtime_version,
        ready=ready is not None and ready.status == "True",
        ready_message="" if ready is None else _sentence(ready.reason, ready.message),
        labels=node.metadata.labels,
        allocatable=node.status.allocatable,
        handlers=None if handlers is None else frozenset(one.name for one in handlers),
    )


def kubelet_config(answer: Mapping[str, Any]) -> KubeletConfig:
    """Return the facts in a kubelet's answer to /configz."""
    config = _Configz.model_validate(answer).kubeletconfig
    return KubeletConfig(config.cgroup_driver, config.fail_cgroup_v1, config.feature_gates)


def workload(item: Mapping[str, Any], *, daemon: bool) -> Workload:
    """Return the facts of a Deployment, or of a DaemonSet (`daemon`)."""
    given = _Workload.model_validate(item)
    labels, pod, status = given.metadata.labels, given.spec.template.spec, given.status
    variables = (one for container in pod.containers for one in container.env)
    return Workload(
        component=labels.get(COMPONENT, ""),
        namespace=given.metadata.namespace,
        name=given.metadata.name,
        release=labels.get(RELEASE, ""),
        version=labels.get(CHART_LABEL, "").removeprefix(CHART),
        desired=status.desired_number_scheduled if daemon else given.spec.replicas,
        ready=status.number_ready if daemon else status.ready_replicas,
        images={container.name: container.image for container in pod.containers},
        environment={one.name: one.value for one in variables if one.value is not None and one.name.startswith(PREFIX)},
        priority_class=pod.priority_class_name,
        runtime_class=pod.runtime_class_name,
    )


def component_pod(item: Mapping[str, Any]) -> ComponentPod:
    """Return the facts of a pod of the chart."""
    pod = _Pod.model_validate(item)
    return ComponentPod(
        component=pod.metadata.labels.get(COMPONENT, ""),
        name=pod.metadata.name,
        node=pod.spec.node_name,
        images={container.name: container.image for container in pod.spec.containers},
        trouble=_trouble(pod.status),
    )


def _trouble(status: _PodStatus) -> str:
    """Return why a pod is not ready; empty if it is."""
    ready = _condition(status.conditions, "Ready")
    if ready is not None and ready.status == "True":
        return ""
    for container in status.container_statuses:
        if container.state.waiting is not None:
            return _sentence(container.state.waiting.reason, container.state.waiting.message)
    scheduled = _condition(status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return _sentence(scheduled.reason, scheduled.message)
    return _sentence(status.phase or "not started", "" if ready is None else ready.message)


def crd_facts(item: Mapping[str, Any]) -> CrdFacts:
    """Return the facts of a CustomResourceDefinition."""
    crd = _Crd.model_validate(item)
    established = _condition(crd.status.conditions, "Established")
    return CrdFacts(
        crd.metadata.name, established is not None and established.status == "True", tuple(crd.spec.versions)
    )


def webhooks(item: Mapping[str, Any]) -> tuple[Webhook, ...]:
    """Return the webhooks of a configuration that intercept pods and whose failure refuses them."""
    configuration = _WebhookConfiguration.model_validate(item)
    found = []
    for one in configuration.webhooks:
        if one.failure_policy != "Fail" or not any(rule.intercepts_pods for rule in one.rules):
            continue
        service, url = one.client_config.service, one.client_config.url
        named = "" if service is None else f"{service.namespace}/{service.name}"
        found.append(Webhook(configuration.metadata.name, one.name, named, url))
    return tuple(found)


def ready_endpoints(item: Mapping[str, Any]) -> int:
    """Return the number of ready endpoints in an EndpointSlice; one without a condition is ready."""
    endpoints = _EndpointSlice.model_validate(item).endpoints or []
    return sum(one.conditions.ready is not False for one in endpoints)


def resource_slice(item: Mapping[str, Any]) -> ResourceSlice:
    """Return the facts of a ResourceSlice."""
    spec = _Slice.model_validate(item).spec
    return ResourceSlice(spec.driver, spec.node_name, len(spec.devices))


def device_class(item: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and extendedResourceName of a DeviceClass."""
    given = _DeviceClass.model_validate(item)
    return given.metadata.name, given.spec.extended_resource_name


def local_queue(item: Mapping[str, Any]) -> LocalQueue:
    """Return the facts of a LocalQueue of Kueue."""
    queue = _Queue.model_validate(item)
    active = _condition(queue.status.conditions, "Active")
    trouble = "Kueue has not reported its state" if active is None else _sentence(active.reason, active.message)
    works = active is not None and active.status == "True"
    return LocalQueue(queue.metadata.namespace, queue.metadata.name, queue.spec.cluster_queue, "" if works else trouble)


def heartbeat(item: Mapping[str, Any], now: float) -> tuple[str, float | None]:
    """Return the name of a Lease and the seconds since its renewal; None if it was never renewed."""
    lease = _Lease.model_validate(item)
    renewed = lease.spec.renew_time
    return lease.metadata.name, None if renewed is None else max(0.0, now - renewed.timestamp())
