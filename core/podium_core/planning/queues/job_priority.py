"""Priorities of jobs: within a queue, the trials of a job of higher priority come first.

Without queues, all jobs are in one. The priority of a job never takes a GPU from another queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podium_core.domain.keys import JobKey
from podium_core.domain.snapshot import JobView
from podium_core.planning.ranking import Standing

_ONE_QUEUE = ""


def by_priority(base: Sequence[Standing], queue_of: Mapping[JobKey, str] | None) -> list[Standing]:
    """Return the trials in their order, but within each queue those of higher priority first. O(n log n).

    The positions that a queue has in the order remain its own, so no other queue is affected. Pinned trials stay before
    the others. `queue_of`: queue of each job; None without queues.
    """
    groups: dict[str, list[Standing]] = {}
    for standing in base:
        groups.setdefault(queue_name(standing.job, queue_of), []).append(standing)
    for group in groups.values():
        group.sort(key=lambda s: (not s.trial.intent.pinned, -s.job.gpus.priority))  # a stable sort
    turns = {name: iter(group) for name, group in groups.items()}
    return [next(turns[queue_name(standing.job, queue_of)]) for standing in base]


def slot_order(job: JobView, pods: int, gpus: int) -> tuple[bool, int]:
    """Return the sort key by which jobs of a queue get pods: by priority, up to one slot of each GPU.

    What is left goes to the others in the same way, so that their trials can use GPUs that the first job leaves idle.
    With equal priorities, the key follows the number of pods. `pods`: those that the job has.
    """
    return pods >= gpus, -job.gpus.priority


def queue_name(job: JobView, queue_of: Mapping[JobKey, str] | None) -> str:
    """Return the queue of a job; without queues (`queue_of` is None), the same one for all."""
    return _ONE_QUEUE if queue_of is None else queue_of[job.key]
