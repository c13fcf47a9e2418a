"""The driver's library, read through `pynvml`; blocking, so telemetry calls it from a thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pynvml

from podium_agent.observe.gpu_health import Sample

T = TypeVar("T")

_THROTTLE = {
    0x4: "SwPowerCap",
    0x8: "HwSlowdown",
    0x10: "SyncBoost",
    0x20: "SwThermalSlowdown",
    0x40: "HwThermalSlowdown",
    0x80: "HwPowerBrakeSlowdown",
    0x100: "DisplayClockSetting",
}


class DriverTroubleError(Exception):
    """The driver is missing or refuses; the sentence says what NVML said."""


class Driver:
    """Opens the driver; `sample` reads all GPUs. After an error that concerns the driver as a whole, open a new one."""

    def __init__(self) -> None:
        try:
            pynvml.nvmlInit()
            self.version = _text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError as error:
            raise DriverTroubleError(f"NVML does not start: {error}") from error
        self._known: dict[str, Sample] = {}
        self._xids: dict[str, int] = {}
        self._events: Any = None
        self._listening: set[str] = set()

    def close(self) -> None:
        with suppress(pynvml.NVMLError):  # it may be gone already
            pynvml.nvmlShutdown()

    def sample(self) -> tuple[Sample, ...]:
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise DriverTroubleError(f"NVML does not count its GPUs: {error}") from error
        self._hear()
        seen = [sample for index in range(count) if (sample := self._one(index)) is not None]
        uuids = {sample.uuid for sample in seen}
        # a lost GPU may not even tell its uuid: what was known under that index is lost then
        for uuid, last in self._known.items():
            if uuid not in uuids:
                seen.append(Sample(uuid, last.index, last.product, last.memory_total, lost=True))
        self._known |= {sample.uuid: sample for sample in seen}
        return tuple(seen)

    def _one(self, index: int) -> Sample | None:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError:
            return None
        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            use = _ask(lambda: float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))
            self._listen(uuid, handle)
            return Sample(
                uuid=uuid,
                index=index,
                product=_text(pynvml.nvmlDeviceGetName(handle)).replace(" ", "-"),
                memory_total=int(memory.total),
                memory_used=int(memory.used),
                sm_utilization=use,
                temperature=_ask(lambda: float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))),
                sm_clock=_ask(lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))),
                throttle=_throttle(_ask(lambda: int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))) or 0),
                ecc_uncorrected=_ask(
                    lambda: int(
                        pynvml.nvmlDeviceGetTotalEccErrors(
                            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
                        )
                    )
                )
                or 0,
                remap_failed=bool(_ask(lambda: int(pynvml.nvmlDeviceGetRemappedRows(handle)[3])) or 0),
                xid=self._xids.get(uuid),
            )
        except pynvml.NVMLError as error:
            last = self._known.get(uuid, Sample(uuid, index))
            gone = error.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
            return Sample(uuid, index, last.product, last.memory_total, lost=gone, error=str(error))

    def _listen(self, uuid: str, handle: Any) -> None:
        """Ask for this GPU's critical errors, once; not every driver has events."""
        if uuid in self._listening:
            return
        self._listening.add(uuid)
        try:
            if self._events is None:
                self._events = pynvml.nvmlEventSetCreate()
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
        except pynvml.NVMLError:
            pass  # then there are no Xids to be had from it

    def _hear(self) -> None:
        """Take all events that have come since the last look."""
        if self._events is None:
            return
        for _ in range(64):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = _text(pynvml.nvmlDeviceGetUUID(event.device))
            except pynvml.NVMLError:
                return  # none (a timeout), or none to be had
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                self._xids[uuid] = int(event.eventData)


def _ask(question: Callable[[], T]) -> T | None:
    """What this GPU does not support is not known; a lost GPU is an error of the whole sample."""
    try:
        return question()
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED):
            raise
        return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _throttle(bits: int) -> tuple[str, ...]:
    return tuple(name for bit, name in _THROTTLE.items() if bits & bit)
