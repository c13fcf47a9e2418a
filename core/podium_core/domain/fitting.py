"""Test whether a trial of a job could ever run on a GPU, for the planner and for policies that count a job's GPUs."""

from __future__ import annotations

from podium_core.domain.snapshot import GpuView, JobView


def fits(job: JobView, gpu: GpuView) -> bool:
    """Return whether reservation, health, product and memory allow it; the present holder does not matter."""
    needs, available = job.gpus, gpu.availability
    if available.reserved_for is not None and available.reserved_for != job.key.namespace:
        return False
    if gpu.health == "Unhealthy" or available.draining:
        return False
    if needs.products and gpu.product and gpu.product not in needs.products:
        return False
    return needs.memory is None or gpu.memory.total == 0 or needs.memory <= gpu.memory.total
