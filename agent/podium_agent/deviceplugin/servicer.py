"""DevicePlugin services (v1beta1) that the kubelet calls: advertise devices, prefer some, allocate them.

`DevicePluginService` is shared with the service of exclusive GPUs (`exclusive`).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any

import grpc

from podium_agent.deviceplugin.gpu_access import Access, GpuAccess, minors_of
from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as rpc
from podium_agent.deviceplugin.slots import (
    AllocationRefusedError,
    Device,
    check_allocation,
    choose_slots,
    pack,
    slot_devices,
)
from podium_agent.observe.other_plugins import OTHER_DEVICE_PLUGIN, OtherPlugins
from podium_agent.observe.telemetry import Telemetry
from podium_agent.reservations.controller import GpuReservations
from podium_agent.reservations.reserved_gpus import advertised
from podium_agent.settings import AgentSettings
from podium_core.placement.views import GpuReading, PodNeed

log = logging.getLogger(__name__)
MOUNT_POINT = "/podium"
PodNeedLookup = Callable[[int], Awaitable[PodNeed | None]]


class DevicePluginService(rpc.DevicePluginServicer, ABC):
    """Common part of the services; `wake` makes every ListAndWatch stream compare its list again."""

    options = pb.DevicePluginOptions(get_preferred_allocation_available=True)

    def __init__(self, settings: AgentSettings, telemetry: Telemetry, what: str) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._access = GpuAccess(settings.host_root)
        self._what = what
        self._changed = asyncio.Event()
        self._other_plugins: OtherPlugins | None = None
        self.streams = 0
        telemetry.subscribe(self.wake)

    def beside(self, other_plugins: OtherPlugins) -> None:
        """Offer nothing while another plugin gives out the same GPUs, nor before that is known."""
        self._other_plugins = other_plugins
        other_plugins.subscribe(self.wake)

    @property
    def refusal(self) -> str:
        """Why no device is offered, because of another plugin; empty if devices are offered."""
        return "" if self._other_plugins is None else self._other_plugins.refusal

    @property
    def ready(self) -> bool:
        """Whether the devices are known; the kubelet would lose the devices that an incomplete list omits."""
        known = self._other_plugins is None or self._other_plugins.known.is_set()
        return known and bool(self._telemetry.reading.gpus)

    def wake(self) -> None:
        """Make the streams compare the devices with what they sent."""
        self._changed.set()
        self._changed = asyncio.Event()

    @abstractmethod
    def devices(self) -> tuple[Device, ...]:
        """Return the devices to advertise now."""

    @abstractmethod
    def container_response(self, uuids: tuple[str, ...]) -> Any:
        """Return what a container gets with these GPUs; raise AllocationRefusedError to refuse them."""

    def allocation(self, uuids: tuple[str, ...], *mounts: Any) -> Any:
        """Return what a container gets with these GPUs on this node, and `mounts`."""
        access = self._access.of(minors_of(self._telemetry.reading.gpus, uuids))
        return allocation_response(self._settings, uuids, access, *mounts)

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer the kubelet's allocation for the containers of a pod."""
        known = {gpu.uuid for gpu in self._telemetry.reading.gpus}
        await asyncio.to_thread(self._access.refresh)  # a new CDI specification takes a while to parse
        answers = []
        for ask in request.container_requests:
            try:
                if self.refusal:
                    raise AllocationRefusedError(OTHER_DEVICE_PLUGIN, self.refusal)
                answers.append(self.container_response(check_allocation(tuple(ask.devices_ids), known)))
            except AllocationRefusedError as error:
                log.warning("allocation refused: %s", error)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
                raise
        return pb.AllocateResponse(container_responses=answers)

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the options of this service."""
        return self.options

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Send the devices, and send them again whenever they change."""
        sent = None
        self.streams += 1
        try:
            while True:
                changed = self._changed
                now = () if self.refusal else self.devices()
                if now != sent:
                    healthy = sum(device.healthy for device in now)
                    log.info("advertising %d %s, %d healthy", len(now), self._what, healthy)
                    yield pb.ListAndWatchResponse(
                        devices=[
                            pb.Device(ID=device.id, health="Healthy" if device.healthy else "Unhealthy")
                            for device in now
                        ]
                    )
                    sent = now
                await changed.wait()
        finally:
            self.streams -= 1


class SlotService(DevicePluginService):
    """Slots of GPUs, for trials and other pods.

    `exclusive_gpus` returns the GPUs that belong to exclusive pods. `find_pod_need` returns the need of the pod that
    requests this number of slots. `gpus` returns the usage of the GPUs as the extender sees it. `fill_gates` gives the
    gates of new pods their files.
    """

    def __init__(
        self,
        settings: AgentSettings,
        telemetry: Telemetry,
        exclusive_gpus: Callable[[], Collection[str]] = frozenset,
        find_pod_need: PodNeedLookup | None = None,
    ) -> None:
        super().__init__(settings, telemetry, "slots")
        self._exclusive_gpus = exclusive_gpus
        self._find_pod_need = find_pod_need
        self.gpus: Callable[[], Sequence[GpuReading]] = tuple
        self.fill_gates: Callable[[], Awaitable[None]] | None = None

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer once the gates have their files.

        The kubelet starts no container of the pod before the answer.
        """
        if self.fill_gates is not None:
            await self.fill_gates()
        return await super().Allocate(request, context)

    def devices(self) -> tuple[Device, ...]:
        """Return the slots of all GPUs."""
        return slot_devices(self._telemetry.reading.gpus, self._settings.slots_per_gpu)

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer the kubelet's question which slots Podium prefers."""
        gpus = self._telemetry.reading.gpus
        health = {gpu.uuid: gpu.health for gpu in gpus}
        use = {gpu.uuid: gpu.sm_utilization for gpu in gpus}
        answers = []
        for ask in request.container_requests:
            available, must, size = (
                tuple(ask.available_deviceIDs),
                tuple(ask.must_include_deviceIDs),
                ask.allocation_size,
            )
            chosen: tuple[str, ...] = ()
            need = await self._find_pod_need(size) if self._find_pod_need is not None and not must else None
            if need is not None and need.packed:
                chosen = pack(available, size, self.gpus(), need, self._exclusive_gpus())
            chosen = chosen or choose_slots(available, must, size, health, use, self._exclusive_gpus())
            answers.append(pb.ContainerPreferredAllocationResponse(deviceIDs=chosen))
        return pb.PreferredAllocationResponse(container_responses=answers)

    def container_response(self, uuids: tuple[str, ...]) -> Any:
        """Return what a container gets with these GPUs, including the folder with Podium's helpers."""
        return self.allocation(uuids, _mount(self._settings))

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Do nothing: the gate makes trials wait."""
        return pb.PreStartContainerResponse()


class ReservedSlotService(SlotService):
    """Slots of the GPUs that Podium holds by GPU reservations; only these are advertised and allocated."""

    def __init__(
        self,
        settings: AgentSettings,
        telemetry: Telemetry,
        reservations: GpuReservations,
        find_pod_need: PodNeedLookup | None = None,
    ) -> None:
        super().__init__(settings, telemetry, find_pod_need=find_pod_need)
        self._reservations = reservations

    @property
    def ready(self) -> bool:
        """Whether the devices and the GPU reservations are known."""
        return super().ready and self._reservations.known.is_set()

    def devices(self) -> tuple[Device, ...]:
        """Return the slots of the reserved GPUs."""
        gpus = self._telemetry.reading.gpus
        return advertised(gpus, self._settings.slots_per_gpu, self._reservations.held, self._reservations.allocated)

    def container_response(self, uuids: tuple[str, ...]) -> Any:
        """Refuse the slot of a GPU whose reservation has just ended; the kubelet may still request it."""
        lost = next((uuid for uuid in uuids if uuid not in self._reservations.held), None)
        if lost is not None:
            raise AllocationRefusedError(
                "GPUNotReserved", f"Podium's reservation of GPU {lost} has ended; the trial will start on another GPU"
            )
        return super().container_response(uuids)


def _mount(settings: AgentSettings) -> Any:
    return pb.Mount(container_path=MOUNT_POINT, host_path=str(settings.trial_dir_for_mounts), read_only=True)


def allocation_response(settings: AgentSettings, uuids: tuple[str, ...], access: Access, *mounts: Any) -> Any:
    """Return what a container gets with these GPUs: their devices and UUIDs, the settings, `mounts`.

    A container runtime without CDI ignores the CDI devices. NVIDIA's runtime then follows the UUIDs.
    """
    extra = [
        pb.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
        for mount in settings.extra_mounts
    ]
    nodes = [
        pb.DeviceSpec(container_path=device.container_path, host_path=device.host_path, permissions=device.permissions)
        for device in settings.extra_devices
    ]
    given = {device.container_path for device in settings.extra_devices}
    nodes += [
        pb.DeviceSpec(container_path=node, host_path=node, permissions="rw")
        for node in access.nodes
        if node not in given
    ]
    return pb.ContainerAllocateResponse(
        envs={**settings.trial_env, "NVIDIA_VISIBLE_DEVICES": ",".join(uuids)},
        mounts=[*mounts, *extra],
        devices=nodes,
        cdi_devices=[pb.CDIDevice(name=name) for name in access.cdi],
    )
