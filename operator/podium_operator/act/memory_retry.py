"""Retry of a trial that ran out of GPU memory, once, with whole GPUs: no other pod declares memory on them.

The actuator uses it when it creates the pod. The retry declares the memory of a whole GPU and names the products that
have no more memory. So the extender places it only where no memory is declared, and no pod that declares memory beside
it afterwards. If that is not enough, the trial has failed (`observe`).
"""

from __future__ import annotations

from collections.abc import Iterable

from podium_core.domain.gpu_memory import GPU_MEMORY_EXCEEDED
from podium_core.domain.observe import classify_end
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import Gpus
from podium_core.schema.quantity import to_bytes
from podium_core.schema.trial import HyperParamTrial
from podium_operator.act.pod_manifest import WholeGpu
from podium_operator.observe.pod_state import PodState

SIZE_TOLERANCE = 1.05  # GPUs of one product differ by a few pages that are retired or reserved by the driver


def ran_out_of_gpu_memory(trial: HyperParamTrial, latest: PodState | None) -> bool:
    """Return True if the trial ever ran out of GPU memory.

    Its status says so, or its ended pod does and that is not stored yet: an operator that was away may observe the
    failure and create the retry in one reconcile.
    """
    if any(condition.type == GPU_MEMORY_EXCEEDED for condition in trial.status.conditions):
        return True
    return latest is not None and classify_end(latest.facts).reason == GPU_MEMORY_EXCEEDED


def smallest_whole_gpu(gpus: Gpus, nodes: Iterable[GPUNode]) -> WholeGpu | None:
    """Return the smallest GPU that fits on a node that accepts pods; None if no such GPU is known."""
    declared = to_bytes(gpus.memory) if gpus.memory is not None else 1
    there = [gpu for node in nodes if not node.spec.draining for gpu in node.status.gpus if gpu.health != "Unhealthy"]
    fitting = [g for g in there if g.memory_total >= declared and (not gpus.products or g.product in gpus.products)]
    if not fitting:
        return None
    memory = min(gpu.memory_total for gpu in fitting)
    products = {gpu.product for gpu in fitting if gpu.memory_total <= memory * SIZE_TOLERANCE}
    return WholeGpu(memory, () if "" in products else tuple(sorted(products)))
