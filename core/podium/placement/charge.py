"""What a node's GPUs look like with more pods on them, each where the device plugin would put it: on the least loaded.

Used by `readings` for pods that are placed but not reported yet, and by `pieces`, which looks ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from podium.placement.views import GpuReading, PodNeed


def charge(gpus: tuple[GpuReading, ...], needs: Iterable[PodNeed]) -> tuple[GpuReading, ...]:
    """One trial more on each GPU that a pod gets, and its declared memory."""
    for need in needs:
        gpus = charge_at(gpus, least_loaded(gpus, need), need)
    return gpus


def least_loaded(gpus: tuple[GpuReading, ...], need: PodNeed) -> tuple[int, ...]:
    """Where in `gpus` the pod's GPUs are: the fewest trials, then the least declared memory; broken ones last."""

    def load(i: int) -> tuple[bool, int, int, int]:
        gpu = gpus[i]
        return gpu.health == "Unhealthy", gpu.trials, gpu.memory_reserved, i

    return tuple(sorted(range(len(gpus)), key=load)[: need.gpus])


def charge_at(gpus: tuple[GpuReading, ...], places: Iterable[int], need: PodNeed) -> tuple[GpuReading, ...]:
    charged = list(gpus)
    for i in places:
        charged[i] = _with(charged[i], need)
    return tuple(charged)


def _with(gpu: GpuReading, need: PodNeed) -> GpuReading:
    stays, moved, memory = gpu.memory_reserved - gpu.memory_moved, gpu.memory_moved, need.memory or 0
    if need.together:
        stays += memory
    else:
        moved = max(moved, memory)
    return replace(gpu, trials=gpu.trials + 1, memory_reserved=stays + moved, memory_moved=moved)
