"""Allocated GPUs of each pod, as the kubelet reports them (PodResources v1).

The observer, the exclusive allocations and the GPU reservations use it. If the kubelet does not answer, the caller
keeps what it knew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

from podium_agent.deviceplugin.proto import podresources_pb2 as pb
from podium_agent.deviceplugin.proto import podresources_pb2_grpc as rpc
from podium_agent.deviceplugin.slots import uuid_of

PodName = tuple[str, str]
CALL_SECONDS = 3.0
MESSAGE_BYTES = 16 * 2**20
# the default authority of a Unix socket is its escaped path, which Go's HTTP/2 server rejects
CHANNEL_OPTIONS = (("grpc.default_authority", "localhost"),)


class KubeletAwayError(Exception):
    """The kubelet did not answer."""


@dataclass(frozen=True, slots=True, order=True)
class DynamicDevice:
    """A device of a DRA driver."""

    driver: str
    pool: str
    name: str


@dataclass(frozen=True, slots=True)
class PodDevices:
    """Devices of the pods that have any.

    `ids`: for each resource that was asked for; `dynamic`: devices of DRA drivers.
    """

    ids: tuple[Mapping[PodName, frozenset[str]], ...]
    dynamic: Mapping[PodName, frozenset[DynamicDevice]]


@dataclass(frozen=True, slots=True)
class KubeletDevices:
    """Ids of the devices that the kubelet knows, by resource: those on offer, and those of each pod."""

    offered: Mapping[str, frozenset[str]]
    held: Mapping[PodName, Mapping[str, frozenset[str]]]


async def gpus_of_pods(socket: Path, resource: str) -> Mapping[PodName, tuple[str, ...]]:
    """Return the sorted UUIDs of each pod's GPUs.

    The keys are (namespace, name). Pods without the resource are left out.
    """
    (devices_by_pod,) = await devices_of_pods(socket, resource)
    return {name: tuple(sorted({uuid_of(device) for device in devices})) for name, devices in devices_by_pod.items()}


async def devices_of_pods(socket: Path, *resources: str) -> tuple[Mapping[PodName, frozenset[str]], ...]:
    """Return for each resource the device ids of the pods that have any; the keys are (namespace, name)."""
    answer = await _list(socket)
    return tuple(_devices(answer, resource) for resource in resources)


async def all_devices_of_pods(socket: Path, *resources: str) -> PodDevices:
    """Return the device ids for each resource, and the devices of DRA drivers."""
    answer = await _list(socket)
    dynamic: dict[PodName, frozenset[DynamicDevice]] = {}
    for pod in answer.pod_resources:
        devices = {
            DynamicDevice(device.driver_name, device.pool_name, device.device_name)
            for container in pod.containers
            for claim in container.dynamic_resources
            for device in claim.claim_resources
        }
        if devices:
            dynamic[pod.namespace, pod.name] = frozenset(devices)
    return PodDevices(tuple(_devices(answer, resource) for resource in resources), dynamic)


async def all_devices(socket: Path) -> KubeletDevices:
    """Return all devices: those that plugins offer and report as healthy, and those that pods have."""
    try:
        async with _channel(socket) as channel:
            stub = rpc.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]
            offered = await stub.GetAllocatableResources(pb.AllocatableResourcesRequest(), timeout=CALL_SECONDS)
            listed = await stub.List(pb.ListPodResourcesRequest(), timeout=CALL_SECONDS)
    except grpc.aio.AioRpcError as error:
        raise KubeletAwayError(f"{socket}: {error.code().name}") from error
    resources = {
        entry.resource_name
        for pod in listed.pod_resources
        for container in pod.containers
        for entry in container.devices
    }
    held: dict[PodName, dict[str, frozenset[str]]] = {}
    for resource in sorted(resources):
        for pod, devices in _devices(listed, resource).items():
            held.setdefault(pod, {})[resource] = devices
    by_resource: dict[str, frozenset[str]] = {}
    for entry in offered.devices:
        by_resource[entry.resource_name] = by_resource.get(entry.resource_name, frozenset()) | set(entry.device_ids)
    return KubeletDevices(by_resource, held)


async def _list(socket: Path) -> pb.ListPodResourcesResponse:
    try:
        async with _channel(socket) as channel:
            stub = rpc.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]
            answer: pb.ListPodResourcesResponse = await stub.List(pb.ListPodResourcesRequest(), timeout=CALL_SECONDS)
            return answer
    except grpc.aio.AioRpcError as error:
        raise KubeletAwayError(f"{socket}: {error.code().name}") from error


def _channel(socket: Path) -> grpc.aio.Channel:
    options = (*CHANNEL_OPTIONS, ("grpc.max_receive_message_length", MESSAGE_BYTES))
    return grpc.aio.insecure_channel(f"unix://{socket}", options=options)


def _devices(answer: pb.ListPodResourcesResponse, resource: str) -> Mapping[PodName, frozenset[str]]:
    devices_by_pod: dict[PodName, frozenset[str]] = {}
    for pod in answer.pod_resources:
        devices = {
            device
            for container in pod.containers
            for entry in container.devices
            if entry.resource_name == resource
            for device in entry.device_ids
        }
        if devices:
            devices_by_pod[pod.namespace, pod.name] = frozenset(devices)
    return devices_by_pod
