"""Policy `fragmentation`: FGD, the placement that leaves the least of the GPUs in pieces that typical pods cannot use.

Source: Weng et al., *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent*,
USENIX ATC 2023, with Podium's two resources in place of theirs: free shares of a GPU, and the memory beside what its
trials declared. Found in the registry.
"""

from __future__ import annotations

from podium.placement.base import Policy, Question, candidates
from podium.placement.charge import charge
from podium.placement.views import GpuReading, NodeView, PodNeed


def cost(question: Question, node: NodeView) -> float | None:
    """By how many GPUs the fragments of the node grow when the pod is put there (negative: they shrink)."""
    gpus = candidates(question.need, node)
    if gpus is None:
        return None
    typical = question.typical or ((question.need, 1.0),)
    after = charge(node.gpus, (question.need,))
    return _fragments(typical, after) - _fragments(typical, node.gpus)


def _fragments(typical: tuple[tuple[PodNeed, float], ...], gpus: tuple[GpuReading, ...]) -> float:
    """The free part of the GPUs that a pod drawn from `typical` could not use, in GPUs: F_n(M) of the paper."""
    return sum(part * sum(_unusable(need, gpus)) for need, part in typical if need.gpus > 0)


def _unusable(need: PodNeed, gpus: tuple[GpuReading, ...]) -> list[float]:
    """Free part of each GPU that this pod cannot use; of every GPU where there are not enough for it."""
    fits = [_fits(need, gpu) for gpu in gpus]
    enough = sum(fits) >= need.gpus
    return [_free(gpu) for gpu, fit in zip(gpus, fits, strict=True) if not (fit and enough)]


def _fits(need: PodNeed, gpu: GpuReading) -> bool:
    if _free(gpu) == 0.0 or (need.products and gpu.product not in need.products):
        return False
    beside = need.beside(gpu)
    return need.memory is None or gpu.memory_total == 0 or need.memory + beside <= gpu.memory_total


def _free(gpu: GpuReading) -> float:
    """Part of the GPU whose shares are free; nothing of a broken one."""
    if gpu.shares <= 0 or gpu.health == "Unhealthy":
        return 0.0
    return max(0, gpu.shares - gpu.trials) / gpu.shares


FRAGMENTATION = Policy(
    name="fragmentation",
    says="the node where the free shares stay of most use to the pods seen lately (FGD)",
    cost=cost,
    one_best=True,
    reads_typical=True,
)
