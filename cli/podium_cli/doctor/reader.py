"""Reader of the facts for `podium doctor`: every request has a timeout, every list a largest size.

What cannot be read becomes an `Unread` with the reason, except a cluster that cannot be reached at all.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from pydantic import ValidationError

from podium import __version__
from podium_cli.doctor import payloads
from podium_cli.doctor.facts import (
    ClusterFacts,
    CrdFacts,
    LocalQueue,
    NodeFacts,
    Unread,
    Webhook,
    Workload,
    named_queue,
)
from podium_cluster import clock
from podium_cluster.client import Api, ApiError, Manifest
from podium_cluster.resources import GPUNODES, LEASES, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Page, Resource
from podium_core.placement.node_parser import LEASE_PREFIX
from podium_core.schema.base import GROUP
from podium_core.schema.gpunode import GPUNode

T = TypeVar("T")
DEFAULT_NAMESPACE = "podium-system"
CHART = "app.kubernetes.io/name=podium"
MAX_OBJECTS = 10_000  # of one kind
PARALLEL_KUBELETS = 8
KUBELET_SECONDS = 60.0  # for the kubelets of all nodes together
METRICS_BYTES = 8 * 2**20
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
_ADMISSION = "admissionregistration.k8s.io"
WEBHOOKS = tuple(
    Resource(_ADMISSION, "v1", f"{kind}webhookconfigurations", f"{kind.title()}WebhookConfiguration", namespaced=False)
    for kind in ("mutating", "validating")
)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
_CGROUP_VERSION = re.compile(r"^kubelet_cgroup_version(?:\{[^}]*\})? ([12])(?:\.0*)?\s*$", re.MULTILINE)


async def read_facts(api: Api, *, only: str = "", namespace: str | None = None) -> ClusterFacts:
    """Read the facts.

    `only` names the node to check, `namespace` that of Podium (default: where the chart is).

    Raises ApiError if the API server cannot be reached or does not accept the credentials.
    """
    server_version = await _server_version(api)
    workloads = await _workloads(api, namespace)
    if namespace is None:
        installed = () if isinstance(workloads, Unread) else workloads
        namespace = next((one.namespace for one in installed), DEFAULT_NAMESPACE)
    facts = ClusterFacts(
        cli_version=__version__,
        namespace=namespace,
        server_version=server_version,
        nodes=await _nodes(api, only),
        workloads=workloads,
        pods=await _all(api, PODS, payloads.component_pod, namespace, labels=CHART),
        crds=await _crds(api),
        gpu_nodes=await _table(api, GPUNODES, _gpu_node),
        heartbeats=await _heartbeats(api, namespace),
        priority_classes=await _table(api, PRIORITY_CLASSES, lambda one: (_name(one), int(one["value"]))),
        runtime_classes=await _table(api, RUNTIME_CLASSES, lambda one: (_name(one), str(one["handler"]))),
        namespace_labels=await _namespace_labels(api, namespace),
        webhooks=await _webhooks(api),
        device_classes=await _table(api, DEVICE_CLASSES, payloads.device_class),
        slices=await _all(api, SLICES, payloads.resource_slice),
        local_queues=await _local_queues(api, named_queue(() if isinstance(workloads, Unread) else workloads)),
        only=only,
    )
    return await _with_kubelets(api, facts)


async def _server_version(api: Api) -> str | Unread:
    try:
        return str((await api.version()).get("gitVersion", ""))
    except ApiError as error:
        if error.status in (0, 401):
            raise
        return _why(error)


async def _attempt(request: Awaitable[Manifest], parse: Callable[[Manifest], T]) -> T | Unread:
    """Return the parsed answer of a request, or why there is none."""
    try:
        return parse(await request)
    except ApiError as error:
        return _why(error)
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        return Unread(f"the answer is not of the expected form: {' '.join(str(error).split())[:200]}")


def _why(error: ApiError) -> Unread:
    """Return the reason of a failed request as a clause."""
    reason = str(error)
    if error.status == 403:
        reason = f"you may not read it: {error.message}"
    elif error.not_found and "page not found" in error.message:
        reason = "the API server does not serve this kind"
    return Unread(reason[:300], error.status)


async def _all(
    api: Api,
    resource: Resource,
    parse: Callable[[Manifest], T],
    namespace: str | None = None,
    *,
    labels: str | None = None,
) -> tuple[T, ...] | Unread:
    """Return all objects of a kind, parsed; Unread if there are too many."""
    found: list[T] = []
    after = ""
    while True:
        page = Page(after=after)
        answer = await _attempt(api.list(resource, namespace, labels=labels, page=page), lambda one: one)
        if isinstance(answer, Unread):
            return answer
        try:
            found += map(parse, answer["items"])
        except (ValidationError, KeyError, TypeError, ValueError) as error:
            return Unread(f"a {resource.kind} is not of the expected form: {' '.join(str(error).split())[:200]}")
        after = answer["metadata"].get("continue") or ""
        if not after:
            return tuple(found)
        if len(found) >= MAX_OBJECTS:
            return Unread(f"there are more than {MAX_OBJECTS} objects of the kind {resource.kind}")


async def _table(api: Api, resource: Resource, parse: Callable[[Manifest], tuple[str, T]]) -> Mapping[str, T] | Unread:
    found = await _all(api, resource, parse)
    return found if isinstance(found, Unread) else dict(found)


def _name(item: Manifest) -> str:
    return str(item["metadata"]["name"])


def _gpu_node(item: Manifest) -> tuple[str, GPUNode]:
    return _name(item), GPUNode.model_validate(item)


async def _nodes(api: Api, only: str) -> tuple[NodeFacts, ...] | Unread:
    if not only:
        return await _all(api, NODES, payloads.node_facts)
    found = await _attempt(api.get(NODES, only), payloads.node_facts)
    if isinstance(found, Unread) and found.status == 404:
        return ()
    return found if isinstance(found, Unread) else (found,)


async def _workloads(api: Api, namespace: str | None) -> tuple[Workload, ...] | Unread:
    deployments = await _all(
        api, DEPLOYMENTS, lambda one: payloads.workload(one, daemon=False), namespace, labels=CHART
    )
    daemons = await _all(api, DAEMON_SETS, lambda one: payloads.workload(one, daemon=True), namespace, labels=CHART)
    if isinstance(deployments, Unread) or isinstance(daemons, Unread):
        return deployments if isinstance(deployments, Unread) else daemons
    return (*deployments, *daemons)


async def _crds(api: Api) -> tuple[CrdFacts, ...] | Unread:
    """Return Podium's CRDs; each is read by name, because the others of a cluster may be large."""
    found: list[CrdFacts] = []
    for plural in ("hyperparamjobs", "hyperparamtrials", "gpunodes", "gpuqueues"):
        one = await _attempt(api.get(CRDS, f"{plural}.{GROUP}"), payloads.crd_facts)
        if isinstance(one, Unread) and one.status == 404:
            continue
        if isinstance(one, Unread):
            return one
        found.append(one)
    return tuple(found)


async def _heartbeats(api: Api, namespace: str) -> Mapping[str, float] | Unread:
    leases = await _all(api, LEASES, lambda one: payloads.heartbeat(one, clock.now()), namespace)
    if isinstance(leases, Unread):
        return leases
    return {
        name.removeprefix(LEASE_PREFIX): age
        for name, age in leases
        if name.startswith(LEASE_PREFIX) and age is not None
    }


async def _namespace_labels(api: Api, namespace: str) -> Mapping[str, str] | Unread | None:
    found = await _attempt(
        api.get(NAMESPACES, namespace), lambda one: dict[str, str](one["metadata"].get("labels") or {})
    )
    return None if isinstance(found, Unread) and found.status == 404 else found


async def _local_queues(api: Api, name: str) -> tuple[LocalQueue, ...] | Unread:
    """Return the LocalQueues of Kueue with this name, in all namespaces; without a name, nothing is read."""
    if not name:
        return ()
    found = await _all(api, LOCAL_QUEUES, payloads.local_queue)
    return found if isinstance(found, Unread) else tuple(one for one in found if one.name == name)


async def _webhooks(api: Api) -> tuple[Webhook, ...] | Unread:
    hooks: list[Webhook] = []
    for resource in WEBHOOKS:
        found = await _all(api, resource, payloads.webhooks)
        if isinstance(found, Unread):
            return found
        hooks += [hook for configuration in found for hook in configuration]
    endpoints: dict[str, int | Unread] = {}
    for service in sorted({hook.service for hook in hooks if hook.service}):
        namespace, name = service.split("/")
        label = f"kubernetes.io/service-name={name}"
        counts = await _all(api, ENDPOINT_SLICES, payloads.ready_endpoints, namespace, labels=label)
        endpoints[service] = counts if isinstance(counts, Unread) else sum(counts)
    return tuple(replace(hook, endpoints=endpoints.get(hook.service, 0)) for hook in hooks)


async def _with_kubelets(api: Api, facts: ClusterFacts) -> ClusterFacts:
    """Add the facts of the kubelets of the checked nodes, which are read within one time limit."""
    if isinstance(facts.nodes, Unread):
        return facts
    gate, late = asyncio.Semaphore(PARALLEL_KUBELETS), Unread(f"it did not answer within {KUBELET_SECONDS:g} s")
    asked: dict[str, NodeFacts] = {
        node.name: replace(node, kubelet=late, cgroup_version=late) for node in facts.checked_nodes
    }

    async def ask(node: NodeFacts) -> None:
        async with gate:
            config = await _attempt(api.kubelet_config(node.name), payloads.kubelet_config)
            asked[node.name] = replace(asked[node.name], kubelet=config)
            asked[node.name] = replace(asked[node.name], cgroup_version=await _cgroup_version(api, node.name))

    try:
        async with asyncio.timeout(KUBELET_SECONDS), asyncio.TaskGroup() as tasks:
            for node in facts.checked_nodes:
                tasks.create_task(ask(node))
    except TimeoutError:
        pass  # what was not read in time says so
    return replace(facts, nodes=tuple(asked.get(node.name, node) for node in facts.nodes))


async def _cgroup_version(api: Api, node: str) -> int | Unread:
    """Return the cgroup version of a node, which the kubelet reports among its metrics since 1.31."""
    try:
        text = await api.kubelet_metrics(node, limit_bytes=METRICS_BYTES)
    except ApiError as error:
        return _why(error)
    found = _CGROUP_VERSION.search(text)
    return Unread("the kubelet's metrics do not have kubelet_cgroup_version") if found is None else int(found[1])
