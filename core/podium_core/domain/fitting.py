"""Test whether trials of a job could run on GPUs, for the planner and for policies that count a job's GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podium_core.domain.gpu_fit import misfit
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.snapshot import GpuNeeds, JobView


def fits(job: JobView, gpu: GpuView) -> bool:
    """Return whether a GPU's reservation, health, product and memory allow the trial, whatever its holder."""
    return _is_offered(job, gpu) and misfit(job.gpus, gpu) is None


def fits_now(job: JobView, gpu: GpuView) -> bool:
    """Return whether the trial also fits beside what the other pods on the GPU declared."""
    beside = gpu.memory.reserved - (gpu.memory.movable if job.abilities.moves_memory else 0)
    return _is_offered(job, gpu) and misfit(job.gpus, gpu, beside=beside) is None


def _is_offered(job: JobView, gpu: GpuView) -> bool:
    available = gpu.availability
    return available.reserved_for in (None, job.key.namespace) and not available.draining


def trials_that_fit(needs: GpuNeeds, nodes: Iterable[Sequence[int]]) -> int:
    """Return how many trials that need GPUs get slots at the same time. O(GPUs), and more rarely.

    `nodes`: the free slots of each usable GPU, by node. A worker needs slots on different GPUs of one node, and the
    workers of a trial need different nodes.
    """
    return _groups([_groups(free, needs.per_worker) for free in nodes], needs.workers)


def _groups(free: Sequence[int], size: int) -> int:
    """Return how many groups of `size` different members can be formed, if each occurs `free` times."""
    if size == 1:
        return sum(free)
    count = sum(free) // size
    while sum(min(times, count) for times in free) < count * size:
        count -= 1
    return count
