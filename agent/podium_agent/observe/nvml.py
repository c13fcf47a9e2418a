"""Samples of the driver's library through `pynvml`; the calls block, so telemetry makes them in a thread.

A GPU that answers with an error hides neither the other GPUs nor what its other answers tell.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import pynvml

from podium_agent.driver.libraries import DriverLibraries, LibrariesMissingError
from podium_agent.observe.gpu_health import PROGRAM_XIDS, GpuFaults, GpuLoad, Sample
from podium_agent.observe.gpu_notes import GpuNotes
from podium_agent.observe.nvml_answers import (
    NOT_REPORTED,
    Answers,
    recovery_action,
    text,
    uncorrected_errors,
    utilization,
)
from podium_cluster.component.logs import about

log = logging.getLogger(__name__)
MOST_EVENTS = 64  # of one GPU in one sample

_THROTTLE = {
    0x4: "SwPowerCap",
    0x8: "HwSlowdown",
    0x10: "SyncBoost",
    0x20: "SwThermalSlowdown",
    0x40: "HwThermalSlowdown",
    0x80: "HwPowerBrakeSlowdown",
    0x100: "DisplayClockSetting",
}
_RECOVERY_ACTIONS = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "a reset of the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "a reboot of the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "a drain of peer-to-peer traffic",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "a drain and a reset of the GPU",
}


class DriverTroubleError(Exception):
    """The driver is missing or refuses; the message contains NVML's answer."""


class Driver:
    """Open driver; `sample` reads all GPUs. After a DriverTroubleError, open a new one.

    `notes` hold what the driver reports only once.
    """

    def __init__(self, notes: GpuNotes | None = None) -> None:
        try:
            pynvml.nvmlInit()
            self.version = text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError as error:
            raise DriverTroubleError(f"NVML does not start: {error}") from error
        self._notes = notes if notes is not None else GpuNotes()
        self._program_xids: dict[str, int] = {}  # the latest one of each GPU
        self._events: dict[str, Any] = {}  # one set for each GPU: waiting for a lost one fails
        self._unidentified: set[int] = set()  # indices, to log each once

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
        self._notes.clear_deleted()
        for uuid in self._events:
            self._hear(uuid)
        samples: dict[str, Sample] = {}
        silent: dict[int, Answers] = {}
        for index in range(count):
            answers = Answers()
            handle, name = _identify(index, answers)
            if name is None:
                silent[index] = answers
            else:
                samples[name] = self._read(name, index, handle, answers)
        return (*samples.values(), *self._without_answer(samples.keys(), silent))

    def _without_answer(self, seen: Collection[str], silent: dict[int, Answers]) -> list[Sample]:
        """Return samples of the known GPUs that did not report their UUIDs now."""
        samples = []
        for uuid, note in self._notes.by_uuid.items():
            if uuid in seen:
                continue
            answers = silent.pop(note.index, None)  # None: NVML does not list the GPU any more
            samples.append(
                Sample(
                    uuid,
                    note.index,
                    note.product,
                    note.memory_total,
                    error=answers.refusal if answers is not None else "",
                    faults=GpuFaults(
                        lost=answers is None or answers.lost,
                        reset_required=answers is not None and answers.reset_required,
                        **self._xid(uuid, None),
                    ),
                )
            )
        for index in silent.keys() - self._unidentified:
            self._unidentified.add(index)
            log.error("no trial can use GPU %d, which does not report its UUID: %s", index, silent[index].refusal)
        return samples

    def _read(self, uuid: str, index: int, handle: Any, answers: Answers) -> Sample:
        ask, known = answers.ask, self._notes.of(uuid)
        memory = ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
        product = ask(lambda: text(pynvml.nvmlDeviceGetName(handle)).replace(" ", "-")) or known.product
        total = known.memory_total if memory is None else int(memory.total)
        recovery = ask(lambda: recovery_action(handle))
        self._listen(uuid, handle)
        load = GpuLoad(
            memory_used=0 if memory is None else int(memory.used),
            sm_utilization=ask(lambda: utilization(handle)),
            temperature=ask(lambda: float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))),
            sm_clock=ask(lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))),
            throttle=_throttle(ask(lambda: int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))) or 0),
        )
        ecc_uncorrected = ask(lambda: uncorrected_errors(handle)) or 0
        remap_failed = bool(ask(lambda: int(pynvml.nvmlDeviceGetRemappedRows(handle)[3])) or 0)
        mig = bool(ask(lambda: int(pynvml.nvmlDeviceGetMigMode(handle)[0])) or 0)
        minor = ask(lambda: int(pynvml.nvmlDeviceGetMinorNumber(handle)))
        faults = GpuFaults(
            lost=answers.lost,  # known only after the last question
            reset_required=answers.reset_required,
            ecc_uncorrected=ecc_uncorrected,
            remap_failed=remap_failed,
            recovery=_RECOVERY_ACTIONS.get(recovery, f"recovery action {recovery}") if recovery else "",
            **self._xid(uuid, recovery),
        )
        sample = Sample(
            uuid, index, product, total, mig=mig, error=answers.error, load=load, faults=faults, minor=minor
        )
        update = {"index": index, "product": product, "memory_total": total}
        self._notes.write(uuid, self._notes.of(uuid).model_copy(update=update))
        return sample

    def _xid(self, uuid: str, recovery: int | None) -> dict[str, Any]:
        """Return the Xid to report: one that keeps the GPU unhealthy before any other."""
        note = self._notes.of(uuid)
        if note.xid is not None and not note.xid_cleared:
            if recovery and not note.recovery_requested:
                self._notes.write(uuid, note.model_copy(update={"recovery_requested": True}))
            elif recovery == pynvml.NVML_GPU_RECOVERY_ACTION_NONE and note.recovery_requested:
                self._notes.clear(uuid, "the driver asks for no recovery action any more")
                self._events.pop(uuid, None)  # a reset has ended the subscription
            return {"xid": note.xid, "xid_cleared": self._notes.of(uuid).xid_cleared}
        xid = self._program_xids.get(uuid, note.xid)
        return {"xid": xid, "xid_cleared": note.xid_cleared}

    def _listen(self, uuid: str, handle: Any) -> None:
        """Subscribe once to this GPU's critical errors; not every driver has events."""
        if uuid in self._events:
            return
        try:
            events = pynvml.nvmlEventSetCreate()
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
        except pynvml.NVMLError as error:
            if error.value in NOT_REPORTED:
                self._events[uuid] = None  # without events there are no Xids
            return
        self._events[uuid] = events

    def _hear(self, uuid: str) -> None:
        """Take all events of this GPU that arrived since the last sample."""
        if self._events[uuid] is None:
            return
        for _ in range(MOST_EVENTS):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events[uuid], 0)
            except pynvml.NVMLError:
                return  # no event (a timeout), or events are not supported
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                # a GPU that fell off the bus does not report its UUID any more
                reporter = Answers().ask(lambda: text(pynvml.nvmlDeviceGetUUID(event.device)))  # noqa: B023
                self._note_xid(reporter or uuid, int(event.eventData))

    def _note_xid(self, uuid: str, xid: int) -> None:
        if xid in PROGRAM_XIDS:
            self._program_xids[uuid] = xid
            return
        with about(gpu=uuid):
            log.error("GPU %s is unhealthy: the driver reported Xid %d", uuid, xid)
        update = {"xid": xid, "xid_cleared": False, "recovery_requested": False}
        self._notes.write(uuid, self._notes.of(uuid).model_copy(update=update))


def open_driver(libraries: DriverLibraries, notes: GpuNotes | None = None) -> Driver:
    """Open the driver with the libraries that the agent finds; raise DriverTroubleError with the cure."""
    try:
        libraries.prepare()
    except LibrariesMissingError as error:
        raise DriverTroubleError(str(error)) from error
    try:
        return Driver(notes)
    except DriverTroubleError as error:
        mismatch = libraries.mismatch()
        raise DriverTroubleError(f"{error}; {mismatch}") if mismatch else error from error


def _identify(index: int, answers: Answers) -> tuple[Any, str | None]:
    """Return the handle and the UUID of a GPU; None for what it does not report."""
    handle = answers.ask(lambda: pynvml.nvmlDeviceGetHandleByIndex(index))
    uuid = None if handle is None else answers.ask(lambda: text(pynvml.nvmlDeviceGetUUID(handle)))
    return handle, uuid


def _throttle(bits: int) -> tuple[str, ...]:
    return tuple(name for bit, name in _THROTTLE.items() if bits & bit)
