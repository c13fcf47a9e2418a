"""Resources of a trial's pod: slots, memory for GPU memory, CPUs, and the whole GPU of a retry. Pure.

A trial that ran out of GPU memory is retried on a whole GPU, the smallest one that fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from podium_core.domain.gpu_fit import misfit
from podium_core.domain.gpu_memory import GPU_MEMORY_EXCEEDED
from podium_core.domain.observe import PodFacts, classify_end
from podium_core.domain.snapshot import GpuNeeds
from podium_core.schema.checkpointing import CUDA_CHECKPOINT
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import Gpus, HyperParamJob, JobSpec
from podium_core.schema.quantity import to_bytes, to_thousandths
from podium_core.schema.template.cpu_downsizing import DOWNSIZED_MILLICPUS
from podium_core.schema.trial import HyperParamTrial

GPU_MEMORY_LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"
MEBIBYTE = 1 << 20
SIZE_TOLERANCE = 1.05  # GPUs of one product differ by a few pages that are retired or reserved by the driver


@dataclass(frozen=True, slots=True)
class WholeGpu:
    """Whole GPU. `memory`: bytes to declare; `products`: those with no more memory, empty if unknown."""

    memory: int
    products: tuple[str, ...] = ()


def add_slots(container: dict[str, Any], resource: str, count: int) -> None:
    """Request and limit this number of slots."""
    resources = container.setdefault("resources", {})
    for kind in ("requests", "limits"):
        resources[kind] = {**(resources.get(kind) or {}), resource: str(count)}


def remove_slots(container: dict[str, Any], resource: str) -> None:
    """Remove the request and limit of slots; the other resources remain."""
    resources = container.get("resources") or {}
    kept = {kind: {name: value for name, value in part.items() if name != resource} for kind, part in resources.items()}
    container["resources"] = {kind: part for kind, part in kept.items() if part}


def gate_needs_slot(nodes: Iterable[GPUNode]) -> bool:
    """Return whether the gate of a new pod has to request slots, as agents of earlier releases require."""
    return any(node.status.agent and not node.status.gate_volume for node in nodes)


def declared_memory(job: HyperParamJob, whole_gpu: WholeGpu | None) -> int | None:
    """Return the bytes that the trial declares on each of its GPUs, or None."""
    if whole_gpu is not None:
        return whole_gpu.memory
    memory = job.spec.gpus.memory
    return None if memory is None else to_bytes(memory)


def limit_gpu_memory(container: dict[str, Any], memory: int) -> None:
    """Limit the container's memory (bytes) on each of its GPUs, in whole MiB, rounded down.

    NVIDIA's container toolkit (1.20 or later) reads the variable when it starts the container, and tells the driver.
    """
    others = [one for one in container.get("env") or [] if one["name"] != GPU_MEMORY_LIMIT]
    container["env"] = [*others, {"name": GPU_MEMORY_LIMIT, "value": str(max(1, memory // MEBIBYTE))}]


def moved_bytes(spec: JobSpec) -> int:
    """Return the GPU memory (bytes) of one pod on all of its GPUs; 0 if it is never moved off them.

    GPU memory that `cuda-checkpoint` moves becomes memory of the trial's processes. Without a higher limit the kernel
    would kill them. Only a request from the beginning keeps other pods from using that memory while the trial runs.
    """
    if CUDA_CHECKPOINT not in spec.suspension.methods or spec.gpus.memory is None:
        return 0
    return to_bytes(spec.gpus.memory) * spec.gpus_per_worker


def add_memory(container: dict[str, Any], more: int) -> None:
    """Add `more` bytes to the container's memory request and limit.

    A missing limit stays missing; where only a limit is given, Kubernetes uses it as the request. Raises ValueError
    for a value that cannot be parsed as a quantity.
    """
    resources = container.setdefault("resources", {})
    requests, limits = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    if "memory" in requests or "memory" not in limits:
        requests["memory"] = str(to_bytes(str(requests.get("memory", 0))) + more)
    if "memory" in limits:
        limits["memory"] = str(to_bytes(str(limits["memory"])) + more)
    resources["requests"] = requests
    if limits:
        resources["limits"] = limits


def downsize_cpu(containers: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Downsize the CPU requests. Return, by container, the millicpus that were taken from it.

    The pod is created with almost no CPU request. So a node has room for one trial on each slot of its GPUs,
    whatever CPUs the trials request. The agent raises the requests of the trial that holds the GPU (pods/resize).
    """
    taken: dict[str, int] = {}
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        limit = limits.get("cpu")
        wanted = requests.get("cpu", limit)
        if wanted is None:
            continue
        thousandths = to_thousandths(str(wanted))
        if limit is not None and to_thousandths(str(limit)) == thousandths:
            # at its limit the pod could become Guaranteed, and a resize may not change the QoS class
            thousandths -= 1
        if thousandths > DOWNSIZED_MILLICPUS:
            taken[container["name"]] = thousandths
            container["resources"] = {**resources, "requests": {**requests, "cpu": f"{DOWNSIZED_MILLICPUS}m"}}
    return taken


def ran_out_of_gpu_memory(trial: HyperParamTrial, latest: PodFacts | None) -> bool:
    """Return True if the trial ever ran out of GPU memory.

    Its status reports that, or its ended pod does. The pod counts because the status may be old: an operator that was
    away may observe the failure and create the retry in one reconcile.
    """
    if any(condition.type == GPU_MEMORY_EXCEEDED for condition in trial.status.conditions):
        return True
    return latest is not None and classify_end(latest).reason == GPU_MEMORY_EXCEEDED


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
