"""Launch-ahead: Podium's policy. It combines four techniques, each of which can be switched off.

1. Late binding: a stage waits in one queue for all contexts, so no context idles while another has a backlog.
2. Launch-ahead: each stream holds the next stage while one runs (the pool's `depth` of 2). The host's launch time is
   hidden behind the execution, and only few stages share the device at once.
3. Shedding: a job that has not started and can no longer meet its deadline is dropped. An overload then costs only the
   jobs that do not fit, whereas EDF alone would make all jobs late. The time that a job needs is estimated from recent
   jobs, and so holds for a crowded device. If no more jobs wait than there are streams (the end of a burst), a job with
   doubtful chances runs, unless it would be late even alone.
4. Batching: if more stages wait than streams are free, the same stage of several jobs is launched as one batch. This
   saves launches, so it pays if one process launches for all contexts.

Techniques 2 and 4 put more stages in flight (streams x depth x batch), and a started job waits for them at each of its
stages (Little's law). Use one of the two, with the smallest depth or batch that suffices.

Order: high-priority tasks first, which are never shed; then EDF by the job's deadline; then the later stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from podium_realtime.model.task import Priority
from podium_realtime.scheduling.jobs import ReadyStage
from podium_realtime.scheduling.policy import BasePolicy, PriorityKey, SchedulerState
from podium_realtime.scheduling.sgprs import Sgprs


@dataclass(frozen=True, slots=True)
class LaunchAhead(BasePolicy):
    """The launch-ahead policy. Launch-ahead itself is set by the depth of the pool.

    `late_binding`, `shedding`: use these techniques.
    `finish_bursts`: run doubtful jobs at the end of a burst.
    `max_batch`: largest number of frames in one launch; 1 for no batching.
    """

    late_binding: bool = True
    shedding: bool = True
    finish_bursts: bool = True
    max_batch: int = 1
    name: ClassVar[str] = "launch-ahead"

    def assign_context(self, ready: ReadyStage, state: SchedulerState) -> int | None:
        """Return None (the shared queue), or the context that SGPRS chooses without late binding."""
        return None if self.late_binding else Sgprs().assign_context(ready, state)

    def priority_key(self, ready: ReadyStage, now: float) -> PriorityKey:
        """Order by priority, then by the job's deadline (EDF), then by the number of stages left."""
        return (float(ready.job.task.priority), ready.job.deadline, float(ready.stages_after))

    def should_shed(self, ready: ReadyStage, waiting: int, state: SchedulerState) -> bool:
        """Return whether the low-priority job cannot meet its deadline."""
        task, left = ready.job.task, ready.job.deadline - state.now
        if not self.shedding or task.priority is Priority.HIGH or state.times.job_time(task) <= left:
            return False
        burst_ends = waiting <= sum(context.spec.in_flight for context in state.contexts)
        return state.times.min_job_time(task) > left or not (self.finish_bursts and burst_ends)

    def batch_with(self, head: ReadyStage, others: Sequence[ReadyStage], state: SchedulerState) -> Sequence[ReadyStage]:
        """Return as many stages as wait beyond the free streams, up to the batch limit."""
        free = sum(context.spec.in_flight * context.spec.depth - context.committed for context in state.contexts)
        return others[: max(0, min(self.max_batch - 1, len(others) + 1 - free))]
