"""Status of a GPUQueue as the operator writes it. Pure; used by `controller`."""

from __future__ import annotations

from typing import Any

from podium_core.domain.gpu_queue import QueueShare, QueueUsage
from podium_core.schema.gpuqueue import SECONDS_PER_HOUR, GPUQueue
from podium_operator.report.trial_status import timestamp

Manifest = dict[str, Any]
FIGURES = ("window", "gpuSeconds", "gpuHours", "updatedAt")  # fields that move all the time while a trial runs


def queue_status(queue: GPUQueue, share: QueueShare, usage: QueueUsage, jobs: int, now: float) -> Manifest:
    """Return the status of a queue. `jobs`: number of its unfinished jobs."""
    return {
        "observedGeneration": queue.metadata.generation,
        "gpus": {
            "nominal": round(share.nominal, 2),
            "deserved": round(share.deserved, 2),
            "used": share.held,
            "borrowed": share.borrowed,
        },
        "window": {"deserved": round(usage.deserved, 1), "used": round(usage.used, 1)},
        "gpuSeconds": round(usage.total, 1),
        "gpuHours": round(usage.total / SECONDS_PER_HOUR, 3),
        "jobs": jobs,
        "waiting": share.waiting,
        "updatedAt": timestamp(now),
        "conditions": [_active(queue, usage, now)],
    }


def same_state(one: Manifest, other: Manifest) -> bool:
    """Return whether two statuses differ at most in figures that move all the time."""
    return all(one.get(name) == other.get(name) for name in one.keys() | other.keys() if name not in FIGURES)


def _active(queue: GPUQueue, usage: QueueUsage, now: float) -> Manifest:
    """Return the condition Active: whether the queue may get GPUs."""
    budget = queue.spec.budget
    spent = budget is not None and usage.total >= budget.gpu_hours * SECONDS_PER_HOUR
    status, reason, text = "True", "SharesGPUs", "The queue gets its share of the GPUs."
    if spent and budget is not None:
        status, reason = "False", "QueueBudgetSpent"
        text = (
            f"All {budget.gpu_hours:g} GPU-hours of spec.budget.gpuHours are used; raise it to let the queue continue."
        )
    before = next((c for c in queue.status.conditions if c.type == "Active"), None)
    moment = now
    if before is not None and before.status == status and before.last_transition_time is not None:
        moment = before.last_transition_time.timestamp()
    return {
        "type": "Active",
        "status": status,
        "reason": reason,
        "message": text,
        "observedGeneration": queue.metadata.generation,
        "lastTransitionTime": timestamp(moment),
    }
