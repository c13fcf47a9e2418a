"""The one retry of a trial that ran out of GPU memory: with a GPU that nobody else has a share of.

Called by the actuator when it makes the pod. The retry declares a whole GPU, so the extender places it only where no
declared memory is, and nobody beside it afterwards. If that is not enough either, the trial has failed (`observe`).
"""

from __future__ import annotations

from collections.abc import Iterable

from podium.domain.gpu_memory import EXCEEDED
from podium.schema.gpunode import GPUNode
from podium.schema.job import Gpus
from podium.schema.quantity import to_bytes
from podium.schema.trial import HyperParamTrial


def whole_gpu(trial: HyperParamTrial, gpus: Gpus, nodes: Iterable[GPUNode]) -> int | None:
    """Bytes to declare for it: those of the smallest GPU that fits. None: it shares as ever, or no GPU is known."""
    if not any(condition.type == EXCEEDED for condition in trial.status.conditions):
        return None
    declared = to_bytes(gpus.memory) if gpus.memory is not None else 1
    there = (gpu for node in nodes for gpu in node.status.gpus if gpu.health != "Unhealthy")
    fitting = (g for g in there if not gpus.products or g.product in gpus.products)
    return min((gpu.memory_total for gpu in fitting if gpu.memory_total >= declared), default=None)
