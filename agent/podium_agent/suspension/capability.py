"""Whether a node can carry out `cuda-checkpoint`, and why not. The facts are read once; the judgement is pure.

Used by the agent at its start. Floors and limits: NVIDIA/cuda-checkpoint's README and issues 30, 42, 45 and 51, as
gathered in shared/research/checkpoint.md (1.2, 1.3). What only the trial knows (managed memory, CUDA IPC) cannot be
asked before it starts: its first suspension fails then, is undone, and says so.
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
OLDEST_DRIVER_SEVERAL_GPUS = 610  # before, the second rank that NCCL joins to the first is never locked
MPS_PROCESS = "nvidia-cuda-mps"  # as the kernel cuts the names of its daemon and its servers


@dataclass(frozen=True, slots=True)
class Facts:
    """`driver`: "610.43.02", empty without one. `trouble`: why libcuda or NVML could not be asked."""

    driver: str = ""
    machine: str = "x86_64"
    mig: tuple[str, ...] = ()  # uuids of GPUs in MIG mode
    mps: bool = False
    trouble: str = ""


def why_not(facts: Facts) -> str | None:
    """None if it can; else a code and a sentence with the cure."""
    if facts.trouble:
        return f"DriverMissing: {facts.trouble}; give the agent the driver's libraries (agent.driver.libraryPath)"
    number = _branch(facts.driver)
    if number < OLDEST_DRIVER:
        return f"DriverTooOld: driver {facts.driver} cannot checkpoint processes; install {OLDEST_DRIVER} or newer"
    if facts.machine == "aarch64" and number < OLDEST_DRIVER_ARM:
        return f"DriverTooOld: driver {facts.driver} cannot on {facts.machine}; install {OLDEST_DRIVER_ARM} or newer"
    if facts.mig:
        return (
            f"MIGEnabled: GPU {facts.mig[0]} is in MIG mode, which CUDA does not checkpoint; turn MIG off on this node"
        )
    if facts.mps:
        return "MPSEnabled: an MPS daemon runs here, whose clients CUDA does not checkpoint; end it"
    return None


def why_not_several(driver: str) -> str | None:
    """The same for a trial with several GPUs."""
    if _branch(driver) >= OLDEST_DRIVER_SEVERAL_GPUS:
        return None
    return (
        f"DriverTooOldForMultiGPU: driver {driver} does not lock processes that NCCL joins; install "
        f"{OLDEST_DRIVER_SEVERAL_GPUS} or newer, or use one GPU a trial"
    )


def why_not_mapped(driver: str) -> str | None:
    """The same for a process that is to come back on another GPU than it left."""
    if _branch(driver) >= OLDEST_DRIVER_MAPS:
        return None
    return (
        f"DriverTooOldForGPUMap: driver {driver} brings a process back on its own GPUs only; install "
        f"{OLDEST_DRIVER_MAPS} or newer"
    )


def read_facts(proc: Path) -> Facts:
    """What this node is; blocking."""
    machine = platform.machine()
    mps = _runs(proc, MPS_PROCESS)
    try:
        pynvml.nvmlInit()
        try:
            version = pynvml.nvmlSystemGetDriverVersion()
            driver = version.decode() if isinstance(version, bytes) else str(version)
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            mig = tuple(str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles if _in_mig_mode(handle))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return Facts(machine=machine, mps=mps, trouble=f"NVML: {error}")
    return Facts(driver, machine, mig, mps)


def _branch(driver: str) -> int:
    first = driver.partition(".")[0]
    return int(first) if first.isdigit() else 0


def _in_mig_mode(handle: object) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except pynvml.NVMLError:
        return False  # this GPU knows no MIG


def _runs(proc: Path, name: str) -> bool:
    for pid in (entry for entry in os.listdir(proc) if entry.isdigit()):
        try:
            if (proc / pid / "comm").read_text().startswith(name):
                return True
        except (OSError, UnicodeDecodeError):
            continue  # it has ended
    return False
