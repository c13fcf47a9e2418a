"""GPU samples as values, and what follows from them: health and smoothed utilisation. Pure.

Telemetry makes them; the device plugin and the node reporter read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Health = Literal["Healthy", "Unhealthy", "Unknown"]

HALF_LIFE_SECONDS = 2.5
# errors of the program, not of the GPU (NVIDIA's device plugin ignores them too)
PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 109})


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """How busy a GPU is; None: this GPU or driver does not report the value."""

    memory_used: int = 0
    sm_utilization: float | None = None
    temperature: float | None = None
    sm_clock: int | None = None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuFaults:
    """What a GPU and its driver report of faults."""

    lost: bool = False
    reset_required: bool = False
    ecc_uncorrected: int = 0
    remap_failed: bool = False
    recovery: str = ""  # the recovery action that the driver asks for, as a noun phrase
    xid: int | None = None  # one that makes the GPU unhealthy, otherwise the latest one
    xid_cleared: bool = False  # the GPU has come back since that Xid


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of one GPU."""

    uuid: str
    index: int
    product: str = ""
    memory_total: int = 0  # 0: not reported, as on a GPU that shares the memory of its node
    mig: bool = False  # MIG mode is on: CUDA cannot use the GPU as a whole
    error: str = ""  # a call failed for another reason than that this GPU does not report the value
    load: GpuLoad = GpuLoad()
    faults: GpuFaults = GpuFaults()
    minor: int | None = None  # of the device node /dev/nvidiaN


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: its latest sample, smoothed utilisation and health."""

    sample: Sample
    sm_utilization: float
    health: Health
    health_reason: str = ""

    @property
    def uuid(self) -> str:
        return self.sample.uuid

    @property
    def shareable(self) -> bool:
        """Whether Podium announces slots of the GPU: not in MIG mode, which partitions it otherwise."""
        return not self.sample.mig


@dataclass(frozen=True, slots=True)
class Reading:
    """All GPUs at one time; `trouble` explains why the driver is missing or does not answer."""

    at: float = 0.0  # by a monotonic clock; 0: never
    driver: str = ""
    gpus: tuple[Gpu, ...] = ()
    trouble: str = ""


def judge(sample: Sample) -> tuple[Health, str]:
    """Return the health of the GPU, and the reason if it is not healthy.

    A known fault outweighs a failed call.
    """
    fault = _fault(sample)
    if fault:
        return "Unhealthy", fault
    if sample.error:
        return "Unknown", f"DriverError: {sample.error}"
    return "Healthy", ""


def _fault(sample: Sample) -> str:
    """Return why no trial may be placed on the GPU; empty if nothing is known against it."""
    faults = sample.faults
    if faults.lost:
        return "GPULost: the GPU has fallen off the bus; the node must be drained and the GPU reset"
    if faults.reset_required:
        return "GPUResetRequired: the driver cannot use the GPU until it is reset; drain the node and reset the GPU"
    if sample.mig:
        return (
            "MIGEnabled: the GPU is in MIG mode, so Podium announces no slots of it; "
            f"turn MIG off (nvidia-smi -i {sample.index} -mig 0), or leave the GPU to NVIDIA's device plugin"
        )
    if faults.xid is not None and faults.xid not in PROGRAM_XIDS and not faults.xid_cleared:
        return f"Xid{faults.xid}: the driver reported error {faults.xid}; see dmesg, and reset the GPU"
    if faults.recovery:
        return f"RecoveryRequired: the driver asks for {faults.recovery}"
    if faults.remap_failed:
        return "RowRemapFailed: memory rows could not be remapped; the GPU must be replaced"
    if faults.ecc_uncorrected > 0:
        return f"UncorrectedECCErrors: {faults.ecc_uncorrected} uncorrected memory errors since the driver started"
    return ""


def merge(before: Reading, samples: Iterable[Sample], at: float, driver: str) -> Reading:
    """Return the next reading; `at` is a time of a monotonic clock.

    Utilisation is smoothed over about five seconds. A GPU that disappeared remains in the list as lost.
    """
    known = {gpu.uuid: gpu for gpu in before.gpus}
    weight = 1.0 - 0.5 ** (max(0.0, at - before.at) / HALF_LIFE_SECONDS) if before.at else 1.0
    gpus: list[Gpu] = []
    for sample in samples:
        old = known.pop(sample.uuid, None)
        gpus.append(_next(old, sample, weight))
    gpus += [_next(old, _lost(old.sample), weight) for old in known.values()]
    return Reading(at, driver, tuple(sorted(gpus, key=lambda gpu: (gpu.sample.index, gpu.uuid))))


def _lost(sample: Sample) -> Sample:
    return replace(sample, faults=replace(sample.faults, lost=True))


def _next(old: Gpu | None, sample: Sample, weight: float) -> Gpu:
    raw = sample.load.sm_utilization
    if raw is not None:
        raw = min(100.0, max(0.0, raw))
    smooth = old.sm_utilization if old else (raw or 0.0)
    if old is not None and raw is not None:
        smooth += weight * (raw - smooth)
    if sample.faults.lost:
        smooth = 0.0
    health, reason = judge(sample)
    return Gpu(sample, smooth, health, reason)


def unknown(before: Reading, trouble: str) -> Reading:
    """Return the last known GPUs with unknown health, because the driver does not answer."""
    gpus = tuple(replace(gpu, health="Unknown", health_reason=trouble) for gpu in before.gpus)
    return Reading(before.at, before.driver, gpus, trouble)
