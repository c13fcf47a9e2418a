"""Decide whether a node supports `cuda-checkpoint`, and report why not.

The agent reads the facts at its start; the decision itself is pure. The minimum versions come from the README and
issues 30, 42, 45 and 51 of NVIDIA/cuda-checkpoint. Managed memory and CUDA IPC of a trial cannot be detected before
the trial runs: its first suspension then fails, is undone, and reports the reason.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import pynvml

OLDEST_DRIVER = 570
OLDEST_DRIVER_ARM = 595
OLDEST_DRIVER_MAPS = 580
OLDEST_DRIVER_SEVERAL_GPUS = 610  # older drivers never lock the second rank that NCCL connects
MPS_PROCESS = "nvidia-cuda-mps"  # the kernel shortens the names of the MPS daemon and its servers to this


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """Driver and machine of a node.

    `driver` is a version such as "610.43.02", empty without a driver. `error` is the reason why NVML did not answer.
    """

    driver: str = ""
    machine: str = "x86_64"
    mig: tuple[str, ...] = ()  # UUIDs of the GPUs in MIG mode
    mps: bool = False
    error: str = ""
    whole: int = 0  # number of the other GPUs, with those that answer with errors


def cuda_checkpoint_unsupported(facts: DriverFacts) -> str | None:
    """Return why the node cannot use `cuda-checkpoint`, as "Code: message with the cure"; None if it can."""
    if facts.error:
        return f"DriverMissing: {facts.error}; see driverLibrary in the status of the GPUNode"
    number = _branch(facts.driver)
    if number < OLDEST_DRIVER:
        return f"DriverTooOld: driver {facts.driver} cannot checkpoint processes; install {OLDEST_DRIVER} or newer"
    if facts.machine == "aarch64" and number < OLDEST_DRIVER_ARM:
        return (
            f"DriverTooOld: driver {facts.driver} cannot checkpoint processes on {facts.machine}; "
            f"install {OLDEST_DRIVER_ARM} or newer"
        )
    if facts.mig and not facts.whole:
        return f"MIGEnabled: GPU {facts.mig[0]} is in MIG mode, which CUDA cannot checkpoint; turn MIG off on this node"
    if facts.mps:
        return "MPSEnabled: an MPS daemon runs on this node, and CUDA cannot checkpoint its clients; stop the daemon"
    return None


def multi_gpu_unsupported(driver: str) -> str | None:
    """Return why a trial with several GPUs cannot use `cuda-checkpoint`; None if it can."""
    if _branch(driver) >= OLDEST_DRIVER_SEVERAL_GPUS:
        return None
    return (
        f"DriverTooOldForMultiGPU: driver {driver} cannot lock processes that NCCL connects; install "
        f"{OLDEST_DRIVER_SEVERAL_GPUS} or newer, or use one GPU per trial"
    )


def gpu_map_unsupported(driver: str) -> str | None:
    """Return why a process cannot be restored on another GPU than its own; None if it can."""
    if _branch(driver) >= OLDEST_DRIVER_MAPS:
        return None
    return (
        f"DriverTooOldForGPUMap: driver {driver} restores a process on its own GPUs only; install "
        f"{OLDEST_DRIVER_MAPS} or newer"
    )


def read_facts(proc: Path) -> DriverFacts:
    """Read the driver and machine of this node; blocking."""
    machine = platform.machine()
    mps = _runs(proc, MPS_PROCESS)
    try:
        pynvml.nvmlInit()
        try:
            version = pynvml.nvmlSystemGetDriverVersion()
            driver = version.decode() if isinstance(version, bytes) else str(version)
            count = pynvml.nvmlDeviceGetCount()
            mig = tuple(uuid for index in range(count) if (uuid := _uuid_in_mig_mode(index)) is not None)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return DriverFacts(machine=machine, mps=mps, error=f"NVML: {error}")
    return DriverFacts(driver, machine, mig, mps, whole=count - len(mig))


def _branch(driver: str) -> int:
    first = driver.partition(".")[0]
    return int(first) if first.isdigit() else 0


def _uuid_in_mig_mode(index: int) -> str | None:
    """Return the UUID of a GPU in MIG mode; None for any other one.

    A GPU that does not support MIG answers with an error. So does one that is lost or broken, which must not switch
    the method off for the others.
    """
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return str(pynvml.nvmlDeviceGetUUID(handle)) if pynvml.nvmlDeviceGetMigMode(handle)[0] else None
    except pynvml.NVMLError:
        return None


def _runs(proc: Path, name: str) -> bool:
    for pid in (entry for entry in os.listdir(proc) if entry.isdigit()):
        try:
            if (proc / pid / "comm").read_text().startswith(name):
                return True
        except (OSError, UnicodeDecodeError):
            continue  # the process has ended
    return False
