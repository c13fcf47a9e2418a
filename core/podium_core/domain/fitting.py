"""Whether a trial of a job could ever run on a GPU. Used by the planner and by policies that count a job's GPUs."""

from __future__ import annotations

from podium_core.domain.snapshot import GpuView, JobView


def fits(job: JobView, gpu: GpuView) -> bool:
    """Return whether reservation, health, product and memory allow it; the present holder does not matter."""
    if gpu.reserved_for is not None and gpu.reserved_for != job.key.namespace:
        return False
    if gpu.health == "Unhealthy" or gpu.draining or (job.products and gpu.product and gpu.product not in job.products):
        return False
    return job.memory is None or gpu.memory_total == 0 or job.memory <= gpu.memory_total
