"""DevicePlugin service of slots on a node where Podium holds its GPUs by GPU reservations."""

from __future__ import annotations

from typing import Any

from podium_agent.deviceplugin.servicer import PodNeedLookup, SlotService
from podium_agent.deviceplugin.slots import AllocationRefusedError, Device
from podium_agent.observe.telemetry import Telemetry
from podium_agent.reservations.controller import GpuReservations
from podium_agent.reservations.reserved_gpus import advertised
from podium_agent.settings import AgentSettings


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
