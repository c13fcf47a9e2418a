"""The DevicePlugin service of shares where Podium holds GPUs by leases: only those are announced and handed out."""

from __future__ import annotations

from typing import Any

from podium_agent.deviceplugin.servicer import Asker, Servicer
from podium_agent.deviceplugin.slots import Device, RefusedError
from podium_agent.observe.telemetry import Telemetry
from podium_agent.reservations.controller import GpuReservations
from podium_agent.reservations.reserved_gpus import advertised
from podium_agent.settings import AgentSettings


class LeasedShares(Servicer):
    def __init__(
        self, settings: AgentSettings, telemetry: Telemetry, reservations: GpuReservations, asker: Asker | None = None
    ) -> None:
        super().__init__(settings, telemetry, asker=asker)
        self._reservations = reservations

    @property
    def ready(self) -> bool:
        return super().ready and self._reservations.known.is_set()

    def devices(self) -> tuple[Device, ...]:
        gpus = self._telemetry.reading.gpus
        return advertised(gpus, self._settings.slots_per_gpu, self._reservations.held, self._reservations.allocated)

    def give(self, uuids: tuple[str, ...]) -> Any:
        """A share of a GPU whose lease has just ended may still be asked for."""
        lost = next((uuid for uuid in uuids if uuid not in self._reservations.held), None)
        if lost is not None:
            raise RefusedError("GPUNotReserved", f"Podium's lease of GPU {lost} has ended; the trial begins elsewhere")
        return super().give(uuids)
