"""State of each GPU from the point of view of a job: its holder, or why the job cannot use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podium_core.domain.gpu_fit import Misfit, is_wanted, misfit
from podium_core.domain.keys import JobKey
from podium_core.domain.phrases import count
from podium_core.domain.snapshot import JobView
from podium_core.schema.gpunode import GPUNode, GpuStatus
from podium_core.waiting.explanation import GpuState


def gpu_states(job: JobView, nodes: Iterable[GPUNode], jobs: Mapping[str, JobKey]) -> tuple[GpuState, ...]:
    """Return the state of every GPU, by node and index. `jobs`: job of each trial by the trial's uid."""
    ordered = sorted(nodes, key=lambda node: node.metadata.name)
    return tuple(
        _state(job, node, gpu, jobs) for node in ordered for gpu in sorted(node.status.gpus, key=lambda one: one.index)
    )


def _state(job: JobView, node: GPUNode, gpu: GpuStatus, jobs: Mapping[str, JobKey]) -> GpuState:
    name = f"{node.metadata.name}/{gpu.index}"
    obstacle = _obstacle(job, node, gpu, name)
    if obstacle is not None:
        code, message = obstacle
        by = gpu.exclusive_pod or ""
        return GpuState(name, gpu.uuid, gpu.product, "unusable", code, message, by)
    left = max(0, gpu.slots - len(gpu.other_pods) - len(gpu.trials))
    holder = gpu.holder
    if holder is None:
        if left:
            return GpuState(name, gpu.uuid, gpu.product, "free", "Free", f"{name} is idle.", free_slots=left)
        pods = [f"{pod.namespace}/{pod.pod}" for pod in gpu.other_pods]
        text = f"All {gpu.slots} slots of {name} are taken" + (f", by {', '.join(pods[:3])}" if pods else "") + "."
        return GpuState(name, gpu.uuid, gpu.product, "full", "NoFreeSlot", text)
    by, mine = f"{holder.namespace}/{holder.trial}", jobs.get(holder.uid)
    whose = "" if mine is None else f" of job {mine.namespace}/{mine.name}"
    slots = count(left, "free slot") if left else "no free slot"
    text = f"{by}{whose} holds {name}, which has {slots}."
    named = "" if mine is None else f"{mine.namespace}/{mine.name}"
    since = holder.since.timestamp()
    return GpuState(name, gpu.uuid, gpu.product, "held", "GPUInUse", text, by, named, since, left)


def _obstacle(job: JobView, node: GPUNode, gpu: GpuStatus, name: str) -> tuple[str, str] | None:
    """Return code and sentence of the first fact for which no trial of the job gets this GPU; None if there is none."""
    need = job.gpus
    if not is_wanted(gpu.product, need.products):
        wanted = " or ".join(need.products)
        return Misfit.PRODUCT.value, f"{name} is a {gpu.product}, and the job asks for {wanted} (gpus.products)."
    if gpu.health == "Unhealthy":
        return Misfit.UNHEALTHY.value, f"{name} is unhealthy: {gpu.health_reason or 'no reason is reported'}."
    if misfit(need, gpu) is Misfit.TOO_SMALL:
        text = f"{name} has {_gib(gpu.memory_total)} of memory, and a trial needs {_gib(need.memory or 0)}"
        return Misfit.TOO_SMALL.value, f"{text} (gpus.memory)."
    if node.spec.draining:
        return "NodeDraining", f"{name}: its node drains and takes no trial."
    if node.status.mode == "reservations":
        namespace = (gpu.reservation or "").partition("/")[0]
        if not namespace:
            return "GPUNotReserved", f"{name} is not reserved for Podium."
        if namespace != job.key.namespace:
            return "GPUNotReserved", f"{name} is reserved for namespace {namespace}."
    if gpu.exclusive_pod is not None:
        pod = gpu.exclusive_pod or "a pod that is being admitted"
        return "ExclusivePod", f"{name} belongs to the exclusive pod {pod}."
    if gpu.slots - len(gpu.other_pods) <= 0:
        text = f"{name} has no slot for trials: other pods have {len(gpu.other_pods)} of {gpu.slots}."
        return "NoFreeSlot", text
    return None


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
