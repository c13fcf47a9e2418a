"""What a node's GPUs look like with more pods on them, each where the device plugin would put it: on the least loaded.

Used by `readings` for pods that are placed but not reported yet, and by the policy `fragmentation`, which looks ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from podium.placement.views import GpuReading, PodNeed


def charge(gpus: tuple[GpuReading, ...], needs: Iterable[PodNeed]) -> tuple[GpuReading, ...]:
    """One trial more on each GPU that a pod gets, and its declared memory."""
    charged = list(gpus)
    for need in needs:
        order = sorted(
            range(len(charged)),
            key=lambda i: (charged[i].health == "Unhealthy", charged[i].trials, charged[i].memory_reserved, i),
        )
        for i in order[: need.gpus]:
            charged[i] = _with(charged[i], need)
    return tuple(charged)


def _with(gpu: GpuReading, need: PodNeed) -> GpuReading:
    stays, moved, memory = gpu.memory_reserved - gpu.memory_moved, gpu.memory_moved, need.memory or 0
    if need.together:
        stays += memory
    else:
        moved = max(moved, memory)
    return replace(gpu, trials=gpu.trials + 1, memory_reserved=stays + moved, memory_moved=moved)
