"""Test whether a trial of a job could ever run on a GPU, for the planner and for policies that count a job's GPUs."""

from __future__ import annotations

from podium_core.domain.gpu_fit import misfit
from podium_core.domain.snapshot import GpuView, JobView


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
