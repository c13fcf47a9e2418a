"""The retry of a trial that ran out of GPU memory: it gets a whole GPU, the smallest one that fits. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from podium_core.domain.gpu_fit import misfit
from podium_core.domain.gpu_memory import GPU_MEMORY_EXCEEDED
from podium_core.domain.observe import classify_end
from podium_core.domain.snapshot import GpuNeeds
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import Gpus
from podium_core.schema.quantity import to_bytes
from podium_core.schema.trial import HyperParamTrial
from podium_operator.act.pod_manifest import WholeGpu
from podium_operator.observe.pod_state import PodState

SIZE_TOLERANCE = 1.05  # GPUs of one product differ by a few pages that are retired or reserved by the driver


def ran_out_of_gpu_memory(trial: HyperParamTrial, latest: PodState | None) -> bool:
    """Return True if the trial ever ran out of GPU memory.

    Its status reports that, or its ended pod does. The pod counts because the status may be old: an operator that was
    away may observe the failure and create the retry in one reconcile.
    """
    if any(condition.type == GPU_MEMORY_EXCEEDED for condition in trial.status.conditions):
        return True
    return latest is not None and classify_end(latest.facts).reason == GPU_MEMORY_EXCEEDED


def smallest_whole_gpu(gpus: Gpus, nodes: Iterable[GPUNode]) -> WholeGpu | None:
    """Return the smallest GPU that fits on a node that accepts pods; None if no such GPU is known.

    A trial that ran out of GPU memory is retried once. The retry declares the memory of a whole GPU and names the
    products that have no more memory. So the extender places the retry only where no pod declares memory.
    Later it places no pod that declares memory beside the retry. If that is not enough, the trial fails (`observe`).
    """
    need = GpuNeeds(1, tuple(gpus.products), None if gpus.memory is None else to_bytes(gpus.memory))
    there = [gpu for node in nodes if not node.spec.draining for gpu in node.status.gpus if gpu.memory_total > 0]
    fitting = [gpu for gpu in there if misfit(need, gpu) is None]
    if not fitting:
        return None
    memory = min(gpu.memory_total for gpu in fitting)
    products = {gpu.product for gpu in fitting if gpu.memory_total <= memory * SIZE_TOLERANCE}
    return WholeGpu(memory, () if "" in products else tuple(sorted(products)))
