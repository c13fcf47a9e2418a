"""Baselines of SGPRS and DARIS: naive contexts, a single stream, and batching. All treat a network as one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from podium_realtime.scheduling.jobs import ReadyStage
from podium_realtime.scheduling.policy import BasePolicy, PriorityKey, SchedulerState
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority


@dataclass(frozen=True, slots=True)
class Naive(BasePolicy):
    """Unmanaged concurrency: every released job runs at once, on a stream of its own task.

    Each context has all SMs of the device, and tasks are assigned to contexts round-robin. This is the baseline of the
    SGPRS repository, except that its odd tasks use high-priority streams; here all streams are equal.
    """

    name: ClassVar[str] = "naive"
    schedules_stages: ClassVar[bool] = False

    def assign_context(self, ready: ReadyStage, state: SchedulerState) -> int | None:
        """Return the task's context (round-robin)."""
        return state.task_indices[ready.job.task.name] % len(state.contexts)

    def priority_key(self, ready: ReadyStage, now: float) -> PriorityKey:
        """Order by time of release."""
        return (ready.ready_at,)


def naive_pool(device_sms: int, contexts: int, tasks: int) -> tuple[ContextSpec, ...]:
    """Return `contexts` contexts of the whole device, with a stream for each of their tasks."""
    streams = (StreamPriority.LOW,) * -(-tasks // contexts)
    return tuple(ContextSpec(number, device_sms, streams, len(streams)) for number in range(contexts))


@dataclass(frozen=True, slots=True)
class SingleStream(BasePolicy):
    """EDF on one stream of the whole device, one network at a time."""

    name: ClassVar[str] = "single"
    schedules_stages: ClassVar[bool] = False

    def assign_context(self, ready: ReadyStage, state: SchedulerState) -> int | None:
        """Return the only context."""
        return 0

    def priority_key(self, ready: ReadyStage, now: float) -> PriorityKey:
        """Order by deadline (EDF)."""
        return (ready.job.deadline,)


@dataclass(frozen=True, slots=True)
class Batching(SingleStream):
    """EDF on one stream, where waiting frames of the same network run in one batch of at most `max_batch`."""

    max_batch: int = 10
    name: ClassVar[str] = "batching"

    def batch_with(self, head: ReadyStage, others: Sequence[ReadyStage], state: SchedulerState) -> Sequence[ReadyStage]:
        """Return the first waiting frames, up to the batch limit."""
        return others[: self.max_batch - 1]


def single_pool(device_sms: int, depth: int) -> tuple[ContextSpec, ...]:
    """Return one context with one stream.

    `depth`: 1 to synchronise after each frame, 2 to launch the next frame while one runs.
    """
    return (ContextSpec(0, device_sms, (StreamPriority.LOW,), 1, depth),)
