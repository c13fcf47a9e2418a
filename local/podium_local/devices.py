"""Devices on which trials run: the GPUs that the driver reports, or groups of CPU cores in their place."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium_core.schema.job import JobSpec
from podium_core.schema.quantity import to_bytes, to_thousandths
from podium_local.errors import Kind, LocalError

DEFAULT_SLOTS = 4  # trials on one device, as on a cluster; one runs
MAX_SLOTS = 64
MAX_CPUS = 4096
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True)
class Device:
    """One device.

    `cpus`: cores for the trial that runs on it. `memory_total`: bytes of GPU memory, 0 for CPU cores.
    """

    uuid: str
    index: int
    slots: int
    cpus: int
    product: str = ""
    memory_total: int = 0
    is_gpu: bool = False


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Options about devices.

    `gpus`: all, none, or indices such as 0,1; None: all that there are. `slots`: trials on one device. `cpus`: cores
    to use.
    """

    gpus: str | None = None
    slots: int | None = None
    cpus: int | None = None


def find_devices(
    spec: JobSpec, request: DeviceRequest, environ: Mapping[str, str], *, moves_memory: bool = False
) -> tuple[Device, ...]:
    """Return the devices of this machine for the trials of a job, and raise LocalError if there are none.

    `moves_memory`: a suspended trial has left its GPU with its memory.
    """
    _check("--slots", request.slots, MAX_SLOTS)
    _check("--cpus", request.cpus, MAX_CPUS)
    cpus = request.cpus or usable_cpus()
    gpus = () if request.gpus == "none" or spec.gpus.per_trial == 0 else tuple(_chosen(request.gpus, environ))
    if not gpus and request.gpus not in (None, "none") and spec.gpus.per_trial:
        text = f"--gpus {request.gpus}: the driver reports no such GPU; see `nvidia-smi -L`, or give --gpus none"
        raise LocalError(Kind.USAGE, "GPUNotFound", text)
    devices = _gpu_devices(spec, gpus, request, cpus, moves_memory) if gpus else _cpu_devices(spec, request, cpus)
    if len(devices) < spec.gpus.per_trial:
        text = f"spec.gpus.perTrial is {spec.gpus.per_trial} and this machine offers {len(devices)} devices; lower it"
        raise LocalError(Kind.FAILED, "InsufficientDevices", text)
    return devices


def usable_cpus() -> int:
    """Return the number of cores that this process may use: its affinity, and the quota of its cgroup."""
    cores = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        quota, _, period = CPU_QUOTA.read_text().partition(" ")
        if quota != "max":
            cores = min(cores, max(1, math.ceil(int(quota) / int(period))))
    return cores


def cores_per_trial(spec: JobSpec) -> int:
    """Return the cores of one trial: what its container requests, at least one."""
    resources = spec.template["spec"]["containers"][0].get("resources") or {}
    wanted = (resources.get("requests") or resources.get("limits") or {}).get("cpu", 1)
    return max(1, math.ceil(to_thousandths(str(wanted)) / 1000))


def _check(option: str, value: int | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        text = f"{option} must be from 1 to {most} (got {value})"
        raise LocalError(Kind.USAGE, "InvalidOption", text)


def _cpu_devices(spec: JobSpec, request: DeviceRequest, cpus: int) -> tuple[Device, ...]:
    cores = min(cores_per_trial(spec), cpus)
    slots = request.slots or DEFAULT_SLOTS
    return tuple(Device(f"cpu-{index}", index, slots, cores) for index in range(max(1, cpus // cores)))


def _gpu_devices(
    spec: JobSpec, gpus: tuple[tuple[int, str, str, int], ...], request: DeviceRequest, cpus: int, moves_memory: bool
) -> tuple[Device, ...]:
    """Return the GPUs. Memory limits the slots where suspended trials keep it."""
    memory = None if spec.gpus.memory is None else to_bytes(spec.gpus.memory)
    devices = []
    for index, uuid, product, total in gpus:
        fitting = DEFAULT_SLOTS if moves_memory else 1 if not memory or not total else max(1, total // memory)
        slots = request.slots or min(DEFAULT_SLOTS, fitting)
        devices.append(Device(uuid, index, slots, max(1, cpus // len(gpus)), product, total, is_gpu=True))
    return tuple(devices)


def _chosen(wanted: str | None, environ: Mapping[str, str]) -> Iterator[tuple[int, str, str, int]]:
    """Yield index, UUID, product and memory of each wanted GPU, as far as CUDA_VISIBLE_DEVICES allows it."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    allowed = None if visible is None else [one.strip() for one in visible.split(",") if one.strip()]
    indices = None if wanted in (None, "all") else _indices(wanted or "")
    for index, uuid, product, total in _driver_gpus():
        shown = allowed is None or str(index) in allowed or any(uuid.startswith(one) for one in allowed)
        if shown and (indices is None or index in indices):
            yield index, uuid, product, total


def _indices(text: str) -> frozenset[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts) or len(parts) > 1024:
        message = f"--gpus must be all, none, or indices such as 0,1 (got {text!r})"
        raise LocalError(Kind.USAGE, "InvalidOption", message)
    return frozenset(int(part) for part in parts)


def _driver_gpus() -> Iterator[tuple[int, str, str, int]]:
    """Yield the GPUs that the driver reports; none without a driver or without nvidia-ml-py."""
    try:
        import pynvml
    except ImportError:
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            with suppress(pynvml.NVMLError):  # a GPU that does not answer runs no trial
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                if not _is_in_mig_mode(pynvml, handle):
                    name = _text(pynvml.nvmlDeviceGetName(handle)).replace(" ", "-")
                    total = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
                    yield index, _text(pynvml.nvmlDeviceGetUUID(handle)), name, total
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _is_in_mig_mode(pynvml: Any, handle: Any) -> bool:
    with suppress(pynvml.NVMLError):
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    return False


def _text(given: str | bytes) -> str:
    return given.decode() if isinstance(given, bytes) else given
