"""On which GPUs of a node a pod will be, and what they look like then. The rule is the device plugin's own: it calls
`fullest` too (`podium_agent.deviceplugin.packing`).

Used by `readings` for pods that are placed but not reported yet, and by `pieces`, which looks ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from podium_core.placement.views import GpuReading, PodNeed


def charge(gpus: tuple[GpuReading, ...], needs: Iterable[PodNeed]) -> tuple[GpuReading, ...]:
    """One pod more on each GPU that a pod gets, and its declared memory."""
    for need in needs:
        gpus = charge_at(gpus, chosen_gpus(gpus, need), need)
    return gpus


def chosen_gpus(gpus: tuple[GpuReading, ...], need: PodNeed) -> tuple[int, ...]:
    """Where in `gpus` the pod's GPUs are: at most `need.gpus` of them."""
    found = fullest(gpus, need) if need.packed else ()
    return found if len(found) == need.gpus else least_loaded(gpus, need)


def fullest(gpus: tuple[GpuReading, ...], need: PodNeed) -> tuple[int, ...]:
    """The GPUs with the least memory to spare that have room for the pod (best fit); then with the fewest free shares,
    then the first. Fewer than it needs: on the others it does not fit.
    """

    def room(i: int) -> tuple[int, int, int]:
        gpu = gpus[i]
        return gpu.memory_total - gpu.memory_reserved, gpu.slots - gpu.trials, i

    return tuple(sorted((i for i, gpu in enumerate(gpus) if _has_room(gpu, need)), key=room)[: need.gpus])


def least_loaded(gpus: tuple[GpuReading, ...], need: PodNeed) -> tuple[int, ...]:
    """The fewest trials, then the least declared memory; broken ones last."""

    def load(i: int) -> tuple[bool, int, int, int]:
        gpu = gpus[i]
        return gpu.health == "Unhealthy", gpu.trials, gpu.memory_reserved, i

    return tuple(sorted(range(len(gpus)), key=load)[: need.gpus])


def charge_at(gpus: tuple[GpuReading, ...], chosen: Iterable[int], need: PodNeed) -> tuple[GpuReading, ...]:
    charged = list(gpus)
    for i in chosen:
        charged[i] = _with(charged[i], need)
    return tuple(charged)


def _has_room(gpu: GpuReading, need: PodNeed) -> bool:
    fits = gpu.memory_total == 0 or need.memory_beside(gpu) + (need.memory or 0) <= gpu.memory_total
    return fits and gpu.trials < gpu.slots and gpu.health != "Unhealthy"


def _with(gpu: GpuReading, need: PodNeed) -> GpuReading:
    stays, moved, memory = gpu.memory_reserved - gpu.memory_movable, gpu.memory_movable, need.memory or 0
    if need.memory_stays:
        stays += memory
    else:
        moved = max(moved, memory)
    return replace(gpu, trials=gpu.trials + 1, memory_reserved=stays + moved, memory_movable=moved)
