"""Whether a trial of a job could ever run on a GPU. Called by the planner and by policies that count a job's GPUs."""

from __future__ import annotations

from podium_core.domain.snapshot import GpuView, JobView


def fits(job: JobView, gpu: GpuView) -> bool:
    """By lease, health, product and memory; who is there now does not matter."""
    if gpu.reserved_for is not None and gpu.reserved_for != job.key.namespace:
        return False
    if gpu.health == "Unhealthy" or gpu.draining or (job.products and gpu.product and gpu.product not in job.products):
        return False
    return job.memory is None or gpu.memory_total == 0 or job.memory <= gpu.memory_total
