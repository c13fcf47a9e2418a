"""Which shares a pod gets that is no trial and says how much GPU memory it needs: those of the fullest GPUs that hold
it. Pure; used by the servicer. The rule is `podium_core.placement.gpu_choice.fullest`, by which the extender chose the
node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from podium_agent.deviceplugin.slots import uuid_of
from podium_core.placement.gpu_choice import fullest
from podium_core.placement.views import GpuReading, PodNeed


def pack(
    available: Sequence[str], size: int, gpus: Sequence[GpuReading], need: PodNeed, taken: Collection[str] = ()
) -> tuple[str, ...]:
    """`size` shares of different GPUs, none that an urgent pod has for itself (`taken`); empty where the pod does not
    fit onto so many. How many shares of a GPU are free is the kubelet's word: `available`.
    """
    free: defaultdict[str, list[str]] = defaultdict(list)
    for device in sorted(available):
        free[uuid_of(device)].append(device)
    left = tuple(
        replace(gpu, trials=gpu.slots - len(free[gpu.uuid]))
        for gpu in gpus
        if gpu.uuid in free and gpu.uuid not in taken
    )
    chosen = fullest(left, replace(need, gpus=size))
    return tuple(free[left[i].uuid][0] for i in chosen) if len(chosen) == size else ()
