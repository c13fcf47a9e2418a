"""Partitioned non-preemptive EDF: the policy for which the admission test guarantees all deadlines.

Each task stays in the context that the admission controller chose. The pool must have one stage in flight per context
(`partitioned_edf_pool`); `admission.demand` has the schedulability test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from podium_realtime.scheduling.jobs import ReadyStage
from podium_realtime.scheduling.policy import BasePolicy, PriorityKey, SchedulerState
from podium_realtime.scheduling.pool import ContextSpec, context_pool


@dataclass(frozen=True, slots=True)
class PartitionedEdf(BasePolicy):
    """EDF by the job's deadline within each context.

    `contexts`: the context of each task, by name.
    """

    contexts: Mapping[str, int]
    name: ClassVar[str] = "partitioned-edf"

    def assign_context(self, ready: ReadyStage, state: SchedulerState) -> int | None:
        """Return the task's context."""
        return self.contexts[ready.job.task.name]

    def priority_key(self, ready: ReadyStage, now: float) -> PriorityKey:
        """Order by the job's deadline (EDF)."""
        return (ready.job.deadline,)


def partitioned_edf_pool(device_sms: int, contexts: int, oversubscription: float = 1.0) -> tuple[ContextSpec, ...]:
    """Return a pool with one stage in flight per context.

    The worst-case time of a stage then depends on the other contexts alone.
    """
    return context_pool(device_sms, contexts, oversubscription, high=0, low=1, in_flight=1)
