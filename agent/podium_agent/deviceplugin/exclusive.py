"""DevicePlugin service of the resource `podium.dev/gpu-exclusive`: one device per GPU, for exclusive pods.

An exclusive pod has no gate, so PreStartContainer waits until no trial runs on the GPU. The kubelet waits at most 30 s,
reports the reason on the pod, and tries again.
"""

from __future__ import annotations

import logging
from typing import Any

import grpc

from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.servicer import DevicePluginService
from podium_agent.deviceplugin.slots import Device, uuid_of
from podium_agent.observe.telemetry import Telemetry
from podium_agent.schedule.exclusive_allocations import ExclusiveAllocations, GpuStillInUseError
from podium_agent.schedule.exclusive_gpus import prefer, whole_gpu_devices
from podium_agent.schedule.node_reconciler import NodeReconciler
from podium_agent.settings import AgentSettings

log = logging.getLogger(__name__)


class ExclusiveGpuService(DevicePluginService):
    """Whole GPUs, for exclusive pods."""

    options = pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    def __init__(
        self,
        settings: AgentSettings,
        telemetry: Telemetry,
        node_reconciler: NodeReconciler,
        exclusive: ExclusiveAllocations,
    ) -> None:
        super().__init__(settings, telemetry, "whole GPUs")
        self._node_reconciler = node_reconciler
        self._exclusive = exclusive

    def devices(self) -> tuple[Device, ...]:
        """Return one device per GPU."""
        return whole_gpu_devices(self._telemetry.reading.gpus)

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer the kubelet's question which whole GPUs Podium prefers."""
        answers = []
        for ask in request.container_requests:
            chosen = prefer(
                tuple(ask.available_deviceIDs),
                tuple(ask.must_include_deviceIDs),
                ask.allocation_size,
                self._telemetry.reading.gpus,
                self._node_reconciler.view.trials,
            )
            answers.append(pb.ContainerPreferredAllocationResponse(deviceIDs=chosen))
        return pb.PreferredAllocationResponse(container_responses=answers)

    def container_response(self, uuids: tuple[str, ...]) -> Any:
        """Reserve the GPUs and return what the container gets with them."""
        self._exclusive.reserve(uuids)
        return self.allocation(uuids)

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Wait until no trial runs on the container's GPUs; abort the call if that takes too long."""
        uuids = sorted({uuid_of(device) for device in request.devices_ids})
        try:
            await self._exclusive.vacate(uuids)
        except GpuStillInUseError as error:
            log.warning("an exclusive pod cannot start yet: %s", error)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return pb.PreStartContainerResponse()
