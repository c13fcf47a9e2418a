"""Which queue each job belongs to, and why a job can get no GPU from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from podium_core.domain.gpu_queue import DEFAULT_QUEUE, QueueView
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey
from podium_core.domain.phrases import count
from podium_core.domain.snapshot import JobView, Snapshot

# Jobs that may use no queue. Their started trials continue on GPUs that no queue wants; they get no new pods.
UNQUEUED = QueueView("", gpus=0)
NAMES_SHOWN = 5


class Obstacle(NamedTuple):
    """Why a job gets no GPU from its queue: a reason, and a sentence with field, value and cure."""

    reason: str
    message: str


class JobQueue(NamedTuple):
    """The queue of a job, and why the job gets no GPU from it; None: it can get some."""

    name: str
    obstacle: Obstacle | None


@dataclass(frozen=True, slots=True)
class QueueRules:
    """The queues of a snapshot, the queue of each job, and the obstacle of each job that has one."""

    queues: Mapping[str, QueueView]
    queue_of: Mapping[JobKey, str]
    obstacles: Mapping[JobKey, Obstacle]

    @staticmethod
    def of(snapshot: Snapshot) -> QueueRules | None:
        """Return the rules; None without any queue.

        The default queue exists with weight 1 even if it is not given.
        """
        if not snapshot.queues:
            return None
        queues = {queue.name: queue for queue in snapshot.queues}
        queues.setdefault(DEFAULT_QUEUE, QueueView(DEFAULT_QUEUE))
        queue_of: dict[JobKey, str] = {}
        obstacles: dict[JobKey, Obstacle] = {}
        for job in snapshot.jobs:
            name = job.gpus.queue or DEFAULT_QUEUE
            if name not in queues and snapshot.reserves_gpus:
                name = DEFAULT_QUEUE  # the job names a LocalQueue of Kueue
            obstacle = obstacle_of(job, name, queues)
            queue_of[job.key] = name if name in queues else UNQUEUED.name
            if obstacle is not None:
                obstacles[job.key] = obstacle
                if obstacle.reason == "QueueForbidden":
                    queue_of[job.key] = UNQUEUED.name
        if UNQUEUED.name in queue_of.values():
            queues[UNQUEUED.name] = UNQUEUED
        return QueueRules(queues, queue_of, obstacles)


def obstacle_of(job: JobView, name: str, queues: Mapping[str, QueueView]) -> Obstacle | None:
    """Return why the job can get no GPU from the queue `name`, None if it can."""
    queue = queues.get(name)
    if queue is None:
        known = _names(queues)
        text = f"spec.queue: GPUQueue {name} does not exist; create it, or name one of: {known}."
        return Obstacle("QueueNotFound", text)
    if queue.namespaces is not None and job.key.namespace not in queue.namespaces:
        where, allowed = job.key.namespace, _names(queue.namespaces)
        text = f"spec.queue: namespace {where} may not use GPUQueue {name}; its spec.namespaces: {allowed}."
        return Obstacle("QueueForbidden", f"{text} Ask an admin to add {where}, or name another queue.")
    if job.gpus.per_trial and queue.budget is not None and queue.usage.total >= queue.budget:
        spent, budget = queue.usage.total / 3600.0, queue.budget / 3600.0
        text = f"GPUQueue {name} has used {spent:.1f} GPU-hours of its spec.budget.gpuHours {budget:g}"
        return Obstacle("QueueBudgetSpent", f"{text}; ask an admin to raise it, or name another queue.")
    if queue.most is not None and job.gpus.per_trial > queue.most:
        text = f"gpus.perTrial is {job.gpus.per_trial}, but GPUQueue {name} may hold {count(queue.most, 'GPU')}"
        return Obstacle(
            "QueueQuotaTooSmall", f"{text}; ask an admin to raise its spec.gpus, or use fewer GPUs for a trial."
        )
    return None


def jobs_of_holders(snapshot: Snapshot, gpus: Iterable[GpuView]) -> Iterator[JobKey]:
    """Yield the job of the trial that holds each of these GPUs; nothing for a GPU without one."""
    for gpu in gpus:
        trial = None if gpu.holder is None else snapshot.holders.get(gpu.holder)
        if trial is not None:
            yield trial.job


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - NAMES_SHOWN} more" if len(ordered) > NAMES_SHOWN else ""
    return (", ".join(ordered[:NAMES_SHOWN]) or "none") + more
