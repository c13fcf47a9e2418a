"""The GPUs of a node that a pod will get, and their state then.

The device plugin follows the same rule. `node_parser` uses it for pods that are placed but not reported yet, and
`gpu_fragments` to look ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from podium_core.domain.gpu_fit import misfit
from podium_core.placement.views import GpuReading, MemoryUse, PodNeed


def charge(gpus: tuple[GpuReading, ...], needs: Iterable[PodNeed]) -> tuple[GpuReading, ...]:
    """Return the GPUs with the pods of these needs added.

    One pod more on each of their GPUs, and its declared memory.
    """
    for need in needs:
        gpus = charge_at(gpus, chosen_gpus(gpus, need), need)
    return gpus


def chosen_gpus(gpus: tuple[GpuReading, ...], need: PodNeed) -> tuple[int, ...]:
    """Return the positions in `gpus` of the GPUs that the pod gets: at most `need.gpus` of them."""
    packed = fullest(gpus, need) if need.packed else ()
    return packed if len(packed) == need.gpus else least_loaded(gpus, need)


def fullest(gpus: tuple[GpuReading, ...], need: PodNeed) -> tuple[int, ...]:
    """Return the GPUs with the least free memory that have room for the pod (best fit).

    Ties go to the fewest free slots, then to the first GPU. GPUs of unknown memory come last. There may be fewer than
    it needs: it does not fit on the others.
    """

    def free_memory(i: int) -> tuple[bool, int, int, int]:
        gpu = gpus[i]
        return gpu.memory_total <= 0, gpu.memory_total - gpu.memory.reserved, gpu.slots - gpu.trials, i

    return tuple(sorted((i for i, gpu in enumerate(gpus) if _has_room(gpu, need)), key=free_memory)[: need.gpus])


def least_loaded(gpus: tuple[GpuReading, ...], need: PodNeed) -> tuple[int, ...]:
    """Return the GPUs with the fewest trials, then the least declared memory; unhealthy ones come last."""

    def load(i: int) -> tuple[bool, int, int, int]:
        gpu = gpus[i]
        return gpu.health == "Unhealthy", gpu.trials, gpu.memory.reserved, i

    return tuple(sorted(range(len(gpus)), key=load)[: need.gpus])


def charge_at(gpus: tuple[GpuReading, ...], chosen: Iterable[int], need: PodNeed) -> tuple[GpuReading, ...]:
    """Return the GPUs with one pod more on the chosen ones."""
    charged = list(gpus)
    for i in chosen:
        charged[i] = _with(charged[i], need)
    return tuple(charged)


def _has_room(gpu: GpuReading, need: PodNeed) -> bool:
    return gpu.trials < gpu.slots and misfit(need, gpu, beside=need.memory_beside(gpu)) is None


def _with(gpu: GpuReading, need: PodNeed) -> GpuReading:
    before, memory = gpu.memory, need.memory or 0
    fixed, movable = before.reserved - before.movable, before.movable
    if need.memory_stays:
        fixed += memory
    else:
        movable = max(movable, memory)
    return replace(gpu, trials=gpu.trials + 1, memory=MemoryUse(fixed + movable, movable, before.used))
