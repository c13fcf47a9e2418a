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
class Sample:
    """One sample of one GPU; None: this GPU or driver does not report the value."""

    uuid: str
    index: int
    product: str = ""
    memory_total: int = 0
    memory_used: int = 0
    sm_utilization: float | None = None
    temperature: float | None = None
    sm_clock: int | None = None
    throttle: tuple[str, ...] = ()
    ecc_uncorrected: int = 0
    remap_failed: bool = False
    error: str = ""  # the driver answered with an error: its name
    lost: bool = False
    xid: int | None = None  # the latest one from the driver's events


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


@dataclass(frozen=True, slots=True)
class Reading:
    """All GPUs at one time; `trouble` explains why the driver is missing or does not answer."""

    at: float = 0.0
    driver: str = ""
    gpus: tuple[Gpu, ...] = ()
    trouble: str = ""


def judge(sample: Sample) -> tuple[Health, str]:
    """Return the health of the GPU, and the reason if it is not healthy."""
    if sample.lost:
        return "Unhealthy", "GPULost: the GPU has fallen off the bus; the node must be drained and the GPU reset"
    if sample.error:
        return "Unknown", f"DriverError: {sample.error}"
    if sample.xid is not None and sample.xid not in PROGRAM_XIDS:
        return "Unhealthy", f"Xid{sample.xid}: the driver reported error {sample.xid}; see dmesg"
    if sample.remap_failed:
        return "Unhealthy", "RowRemapFailed: memory rows could not be remapped; the GPU must be replaced"
    if sample.ecc_uncorrected > 0:
        return (
            "Unhealthy",
            f"UncorrectedECCErrors: {sample.ecc_uncorrected} uncorrected memory errors since the driver started",
        )
    return "Healthy", ""


def merge(before: Reading, samples: Iterable[Sample], at: float, driver: str) -> Reading:
    """Return the next reading.

    Utilisation is smoothed over about five seconds. A GPU that disappeared remains in the list as lost.
    """
    known = {gpu.uuid: gpu for gpu in before.gpus}
    weight = 1.0 - 0.5 ** ((at - before.at) / HALF_LIFE_SECONDS) if before.at else 1.0
    gpus: list[Gpu] = []
    for sample in samples:
        old = known.pop(sample.uuid, None)
        gpus.append(_next(old, sample, weight))
    gpus += [_next(old, replace(old.sample, lost=True), weight) for old in known.values()]
    return Reading(at, driver, tuple(sorted(gpus, key=lambda gpu: (gpu.sample.index, gpu.uuid))))


def _next(old: Gpu | None, sample: Sample, weight: float) -> Gpu:
    raw = sample.sm_utilization
    smooth = old.sm_utilization if old else (raw or 0.0)
    if old is not None and raw is not None:
        smooth += weight * (raw - smooth)
    if sample.lost:
        smooth = 0.0
    health, reason = judge(sample)
    return Gpu(sample, smooth, health, reason)


def unknown(before: Reading, trouble: str) -> Reading:
    """Return the last known GPUs with unknown health, because the driver does not answer."""
    gpus = tuple(replace(gpu, health="Unknown", health_reason=trouble) for gpu in before.gpus)
    return Reading(before.at, before.driver, gpus, trouble)
