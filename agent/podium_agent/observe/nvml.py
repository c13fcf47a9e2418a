"""Samples of the driver's library through `pynvml`; the calls block, so telemetry makes them in a thread."""

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
    """The driver is missing or refuses; the message contains NVML's answer."""


class Driver:
    """Open driver; `sample` reads all GPUs. After a DriverTroubleError, open a new one."""

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
        """Close the driver; a driver that has already gone is not an error."""
        with suppress(pynvml.NVMLError):  # it may have gone already
            pynvml.nvmlShutdown()

    def sample(self) -> tuple[Sample, ...]:
        """Return one sample of every GPU, including GPUs that were lost."""
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise DriverTroubleError(f"NVML does not report the number of GPUs: {error}") from error
        self._hear()
        seen = [sample for index in range(count) if (sample := self._one(index)) is not None]
        uuids = {sample.uuid for sample in seen}
        # a lost GPU may not even report its uuid: the GPU known under that index is lost
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
        """Subscribe once to this GPU's critical errors; not every driver has events."""
        if uuid in self._listening:
            return
        self._listening.add(uuid)
        try:
            if self._events is None:
                self._events = pynvml.nvmlEventSetCreate()
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
        except pynvml.NVMLError:
            pass  # without events there are no Xids

    def _hear(self) -> None:
        """Take all events that arrived since the last sample."""
        if self._events is None:
            return
        for _ in range(64):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = _text(pynvml.nvmlDeviceGetUUID(event.device))
            except pynvml.NVMLError:
                return  # no event (a timeout), or events are not supported
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                self._xids[uuid] = int(event.eventData)


def _ask(question: Callable[[], T]) -> T | None:
    """Return the answer, or None if this GPU does not support the question.

    A lost GPU fails the whole sample.
    """
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
