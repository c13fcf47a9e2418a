"""The DevicePlugin service of `podium.dev/gpu-exclusive`: one device a GPU, given to a pod that is to have it alone.

Its container starts only when no trial works on that GPU: PreStartContainer waits for that, since such a pod has no
gate of ours. The kubelet waits at most 30 s, says why on the pod, and asks again.
"""

from __future__ import annotations

import logging
from typing import Any

import grpc

from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.servicer import Announcer, allocation
from podium_agent.deviceplugin.slots import Device, uuid_of
from podium_agent.observe.telemetry import Telemetry
from podium_agent.schedule.exclusive_allocations import ExclusiveAllocations, GpuStillInUseError
from podium_agent.schedule.exclusive_gpus import prefer, whole_gpu_devices
from podium_agent.schedule.node_reconciler import NodeReconciler
from podium_agent.settings import AgentSettings

log = logging.getLogger(__name__)


class WholeGpus(Announcer):
    options = pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    def __init__(
        self,
        settings: AgentSettings,
        telemetry: Telemetry,
        node_reconciler: NodeReconciler,
        exclusive: ExclusiveAllocations,
    ) -> None:
        super().__init__(telemetry, "whole GPUs")
        self._settings = settings
        self._node_reconciler = node_reconciler
        self._exclusive = exclusive

    def devices(self) -> tuple[Device, ...]:
        return whole_gpu_devices(self._telemetry.reading.gpus)

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
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

    def give(self, uuids: tuple[str, ...]) -> Any:
        self._exclusive.reserve(uuids)
        return allocation(self._settings, uuids)

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        uuids = sorted({uuid_of(device) for device in request.devices_ids})
        try:
            await self._exclusive.vacate(uuids)
        except GpuStillInUseError as error:
            log.warning("a pod is kept from starting: %s", error)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return pb.PreStartContainerResponse()
