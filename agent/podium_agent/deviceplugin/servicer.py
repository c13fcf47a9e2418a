"""The DevicePlugin service (v1beta1) as the kubelet calls it: announces shares, prefers, hands out.

What it has in common with the service of whole GPUs (`whole`) is `Announcer` and `allocation`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any

import grpc

from podium_agent.deviceplugin.packing import pack
from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as rpc
from podium_agent.deviceplugin.slots import Device, RefusedError, check, devices, prefer
from podium_agent.observe.telemetry import Telemetry
from podium_agent.settings import AgentSettings
from podium_core.placement.views import GpuReading, PodNeed

log = logging.getLogger(__name__)
MOUNT_POINT = "/podium"
Asker = Callable[[int], Awaitable[PodNeed | None]]


class Announcer(rpc.DevicePluginServicer):
    """`changed` is set whenever the announced list may differ; each ListAndWatch stream looks for itself."""

    options = pb.DevicePluginOptions(get_preferred_allocation_available=True)

    def __init__(self, telemetry: Telemetry, what: str) -> None:
        self._telemetry = telemetry
        self._what = what
        self._changed = asyncio.Event()
        self.streams = 0
        telemetry.subscribe(self.wake)

    @property
    def ready(self) -> bool:
        """It can be said what is to be announced: a list that lacks something would take it away from the kubelet."""
        return bool(self._telemetry.reading.gpus)

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def devices(self) -> tuple[Device, ...]:
        """What is to be announced now."""
        raise NotImplementedError

    def give(self, uuids: tuple[str, ...]) -> Any:
        """What a container gets that was given these GPUs; raises RefusedError."""
        raise NotImplementedError

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        known = {gpu.uuid for gpu in self._telemetry.reading.gpus}
        answers = []
        for ask in request.container_requests:
            try:
                answers.append(self.give(check(tuple(ask.devices_ids), known)))
            except RefusedError as error:
                log.warning("allocation refused: %s", error)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
                raise
        return pb.AllocateResponse(container_responses=answers)

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.options

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        said = None
        self.streams += 1
        try:
            while True:
                changed = self._changed
                now = self.devices()
                if now != said:
                    healthy = sum(device.healthy for device in now)
                    log.info("announcing %d %s, %d healthy", len(now), self._what, healthy)
                    yield pb.ListAndWatchResponse(
                        devices=[
                            pb.Device(ID=device.id, health="Healthy" if device.healthy else "Unhealthy")
                            for device in now
                        ]
                    )
                    said = now
                await changed.wait()
        finally:
            self.streams -= 1


class Servicer(Announcer):
    """Shares of GPUs, for trials and other pods. `taken` names the GPUs on which no trial works now; `asker` tells what
    the pod needs for which so many shares are asked, `gpus` how full they are, as the extender is told.
    """

    def __init__(
        self,
        settings: AgentSettings,
        telemetry: Telemetry,
        taken: Callable[[], Collection[str]] = frozenset,
        asker: Asker | None = None,
    ) -> None:
        super().__init__(telemetry, "shares")
        self._settings = settings
        self._taken = taken
        self._asker = asker
        self.gpus: Callable[[], Sequence[GpuReading]] = tuple

    def devices(self) -> tuple[Device, ...]:
        return devices(self._telemetry.reading.gpus, self._settings.slots_per_gpu)

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
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
            need = await self._asker(size) if self._asker is not None and not must else None
            if need is not None and need.packed:
                chosen = pack(available, size, self.gpus(), need, self._taken())
            chosen = chosen or prefer(available, must, size, health, use, self._taken())
            answers.append(pb.ContainerPreferredAllocationResponse(deviceIDs=chosen))
        return pb.PreferredAllocationResponse(container_responses=answers)

    def give(self, uuids: tuple[str, ...]) -> Any:
        return allocation(self._settings, uuids, _share(self._settings))

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.PreStartContainerResponse()


def _share(settings: AgentSettings) -> Any:
    return pb.Mount(container_path=MOUNT_POINT, host_path=str(settings.share_dir_for_mounts), read_only=True)


def allocation(settings: AgentSettings, uuids: tuple[str, ...], *mounts: Any) -> Any:
    """What a container gets with these GPUs: their names, the driver's files of this node, and further `mounts`."""
    extra = [
        pb.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
        for mount in settings.extra_mounts
    ]
    nodes = [
        pb.DeviceSpec(container_path=device.container_path, host_path=device.host_path, permissions=device.permissions)
        for device in settings.extra_devices
    ]
    return pb.ContainerAllocateResponse(
        envs={**settings.trial_env, "NVIDIA_VISIBLE_DEVICES": ",".join(uuids)},
        mounts=[*mounts, *extra],
        devices=nodes,
    )
