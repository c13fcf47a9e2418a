"""The DevicePlugin service (v1beta1) as the kubelet calls it: announces shares, prefers, hands out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc

from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.proto import deviceplugin_pb2_grpc as rpc
from podium_agent.deviceplugin.shares import RefusedError, check, devices, prefer
from podium_agent.settings import AgentSettings
from podium_agent.telemetry import Telemetry

log = logging.getLogger(__name__)
MOUNT_POINT = "/podium"


class Servicer(rpc.DevicePluginServicer):
    """`changed` is set whenever the announced list may differ; each ListAndWatch stream looks for itself."""

    def __init__(self, settings: AgentSettings, telemetry: Telemetry) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._changed = asyncio.Event()
        self.streams = 0
        telemetry.subscribe(self._wake)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=True)

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        said = None
        self.streams += 1
        try:
            while True:
                changed = self._changed
                now = devices(self._telemetry.reading.gpus, self._settings.shares)
                if now != said:
                    log.info("announcing %d shares, %d healthy", len(now), sum(device.healthy for device in now))
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

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        gpus = self._telemetry.reading.gpus
        health = {gpu.uuid: gpu.health for gpu in gpus}
        use = {gpu.uuid: gpu.sm_utilization for gpu in gpus}
        answers = []
        for ask in request.container_requests:
            chosen = prefer(
                tuple(ask.available_deviceIDs), tuple(ask.must_include_deviceIDs), ask.allocation_size, health, use
            )
            answers.append(pb.ContainerPreferredAllocationResponse(deviceIDs=chosen))
        return pb.PreferredAllocationResponse(container_responses=answers)

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        known = {gpu.uuid for gpu in self._telemetry.reading.gpus}
        answers = []
        for ask in request.container_requests:
            try:
                uuids = check(tuple(ask.devices_ids), known)
            except RefusedError as error:
                log.warning("allocation refused: %s", error)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
                raise
            answers.append(self._container(uuids))
        return pb.AllocateResponse(container_responses=answers)

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.PreStartContainerResponse()

    def _container(self, uuids: tuple[str, ...]) -> Any:
        settings = self._settings
        share = pb.Mount(container_path=MOUNT_POINT, host_path=str(settings.share_dir_for_mounts), read_only=True)
        mounts = [
            pb.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in settings.extra_mounts
        ]
        nodes = [
            pb.DeviceSpec(
                container_path=device.container_path, host_path=device.host_path, permissions=device.permissions
            )
            for device in settings.extra_devices
        ]
        return pb.ContainerAllocateResponse(
            envs={**settings.trial_env, "NVIDIA_VISIBLE_DEVICES": ",".join(uuids)},
            mounts=[share, *mounts],
            devices=nodes,
        )
