"""Interface of scheduling policies, and the state that the dispatcher shows them.

The dispatcher asks a policy for each decision; policies keep no state. The same policies schedule the simulated GPU and
the runtime on real cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from podium_realtime.model.task import PeriodicTask
from podium_realtime.scheduling.execution_times import ExecutionTimeEstimator
from podium_realtime.scheduling.jobs import PeriodicJob, ReadyStage, StageBatch
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority

PriorityKey = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class JobAdmission:
    """Decision whether a job may run. `context` is the context to which the job is bound; -1 for any."""

    accepted: bool
    code: str
    message: str
    context: int = -1


@dataclass(slots=True)
class ContextState:
    """The stages queued for a context, and the batches committed to each of its streams."""

    spec: ContextSpec
    queued: list[ReadyStage] = field(default_factory=list)
    streams: list[list[StageBatch]] = field(default_factory=list)

    @property
    def in_flight(self) -> int:
        """Number of batches that run or are being launched: at most one for each stream."""
        return sum(map(bool, self.streams))

    @property
    def committed(self) -> int:
        """Number of batches committed to all streams."""
        return sum(map(len, self.streams))

    @property
    def can_start(self) -> bool:
        """Whether one more batch may be on the device."""
        return self.in_flight < self.spec.in_flight

    def is_idle(self, priority: StreamPriority) -> bool:
        """Return whether a stage for a stream of this priority would start at once ("idle" in SGPRS)."""
        own = (batches for level, batches in zip(self.spec.streams, self.streams, strict=True) if level is priority)
        return self.can_start and not self.queued and not all(own)

    def batches(self) -> list[StageBatch]:
        """Return the batches of all streams."""
        return [batch for stream in self.streams for batch in stream]


@dataclass(slots=True)
class SchedulerState:
    """The state on which policies decide.

    `task_indices`: position of each task in `tasks`, by name.
    `times`: expected execution times, from the profile or from recent executions as the policy requires.
    `active_jobs`: the admitted jobs that have not ended.
    """

    now: float
    tasks: Sequence[PeriodicTask]
    task_indices: Mapping[str, int]
    contexts: Sequence[ContextState]
    times: ExecutionTimeEstimator
    active_jobs: Mapping[tuple[str, int], PeriodicJob]


class SchedulingPolicy(Protocol):
    """A real-time scheduling policy."""

    @property
    def name(self) -> str:
        """Name in tables and on the command line."""
        ...

    @property
    def uses_recent_times(self) -> bool:
        """Whether expected times are maxima of recent executions (DARIS) instead of the profile's."""
        ...

    @property
    def schedules_stages(self) -> bool:
        """Whether stages are scheduled one by one; otherwise a network is one stage."""
        ...

    def admit(self, job: PeriodicJob, state: SchedulerState) -> JobAdmission:
        """Decide at the release of a job whether it may run."""
        ...

    def assign_context(self, ready: ReadyStage, state: SchedulerState) -> int | None:
        """Return the context in whose queue the stage waits; None for the queue that all contexts share.

        The dispatcher asks once, when the stage becomes ready.
        """
        ...

    def priority_key(self, ready: ReadyStage, now: float) -> PriorityKey:
        """Return the sort key of a queued stage; the smallest one runs first."""
        ...

    def stream_priority(self, ready: ReadyStage) -> StreamPriority:
        """Return the priority of the stream on which the stage runs."""
        ...

    def should_shed(self, ready: ReadyStage, waiting: int, state: SchedulerState) -> bool:
        """Return whether to drop this job. The dispatcher asks only before the job's first stage starts.

        `waiting`: number of other jobs that have not started.
        """
        ...

    def batch_with(self, head: ReadyStage, others: Sequence[ReadyStage], state: SchedulerState) -> Sequence[ReadyStage]:
        """Return those of `others` that run in one batch with `head`.

        `others`: the same stage of other jobs, in the order of the queue.
        """
        ...


class BasePolicy:
    """Defaults of policies: admit every job, shed none, launch each stage alone, use low-priority streams."""

    uses_recent_times: ClassVar[bool] = False
    schedules_stages: ClassVar[bool] = True

    def admit(self, job: PeriodicJob, state: SchedulerState) -> JobAdmission:
        """Admit the job."""
        return JobAdmission(True, "Admitted", "this policy admits every job.")

    def stream_priority(self, ready: ReadyStage) -> StreamPriority:
        """Return the low priority."""
        return StreamPriority.LOW

    def should_shed(self, ready: ReadyStage, waiting: int, state: SchedulerState) -> bool:
        """Keep the job."""
        return False

    def batch_with(self, head: ReadyStage, others: Sequence[ReadyStage], state: SchedulerState) -> Sequence[ReadyStage]:
        """Launch `head` alone."""
        return ()
