"""The dispatcher: it keeps jobs, queues and streams, and asks a policy for every decision.

The dispatcher has no clock and performs no action: the caller passes the time and launches the returned batches. The
callers are `simulation.engine` with virtual time and `runtime.executor` with the machine's clock.

Invariants, which the tests check:
- a stage is committed only after its predecessors are done;
- a context has at most `in_flight` batches on the device and `in_flight x depth` committed;
- of the stages that may start in a context, the one with the smallest key starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from podium_realtime.model.errors import RealtimeError, require_between
from podium_realtime.model.network import InferenceNetwork
from podium_realtime.model.profile import Profiles
from podium_realtime.model.task import PeriodicTask, require_distinct
from podium_realtime.scheduling.execution_times import ExecutionTimeEstimator
from podium_realtime.scheduling.jobs import (
    JobOutcome,
    JobResult,
    PeriodicJob,
    ReadyStage,
    StageBatch,
    virtual_deadlines,
)
from podium_realtime.scheduling.policy import ContextState, SchedulerState, SchedulingPolicy
from podium_realtime.scheduling.pool import ContextSpec


@dataclass(slots=True)
class _JobProgress:
    """An active job: the stages that are done, and whether one of them was late."""

    job: PeriodicJob
    done: set[int] = field(default_factory=set)
    started: float | None = None  # time at which its first stage was committed
    late: bool = False


@dataclass(slots=True)
class _TaskState:
    """A task, its relative virtual deadlines, its active job and the job that waits for it to end."""

    task: PeriodicTask
    relative_deadlines: tuple[float, ...]
    released: int = 0
    current: PeriodicJob | None = None
    waiting: PeriodicJob | None = None


class Dispatcher:
    """Scheduler state of one run.

    `patience`: part of the period that a release waits for the task's previous job before it is skipped; with 0 it is
        skipped at once.
    """

    def __init__(
        self,
        tasks: Sequence[PeriodicTask],
        pool: Sequence[ContextSpec],
        profiles: Profiles,
        policy: SchedulingPolicy,
        patience: float = 0.0,
    ) -> None:
        require_distinct(tasks)
        _require_distinct_networks(tasks)
        require_between(patience, 0.0, 1.0, "dispatcher: patience")
        if not pool:
            raise RealtimeError("NoContexts", "pool: contexts", "is empty; give at least one context")
        self.policy = policy
        self.results: list[JobResult] = []
        self._patience = patience
        self._profiles = profiles
        self._pool = [ContextState(spec, [], [[] for _ in spec.streams]) for spec in pool]
        self._shared: list[ReadyStage] = []
        self._times = ExecutionTimeEstimator(profiles, [spec.sms for spec in pool], policy.uses_recent_times)
        self._tasks = {task.name: self._task_state(task) for task in tasks}
        self._progress: dict[tuple[str, int], _JobProgress] = {}
        self._active: dict[tuple[str, int], PeriodicJob] = {}
        self._batches: dict[int, StageBatch] = {}
        self._next_number = 0
        self._state = SchedulerState(
            0.0,
            [state.task for state in self._tasks.values()],
            {name: number for number, name in enumerate(self._tasks)},
            self._pool,
            self._times,
            self._active,
        )

    @property
    def contexts(self) -> Sequence[ContextState]:
        """State of each context."""
        return self._pool

    @property
    def state(self) -> SchedulerState:
        """The state that the policy sees."""
        return self._state

    def release(self, name: str, now: float) -> None:
        """Release the next job of a task."""
        state = self._tasks[name]
        task = state.task
        deadlines = tuple(now + relative for relative in state.relative_deadlines)
        job = PeriodicJob(task, state.released, now, now + task.deadline, deadlines)
        state.released += 1
        if state.waiting is not None:
            self._end(state.waiting, JobOutcome.SKIPPED, None)
            state.waiting = None
        if state.current is None:
            self._start(state, job, now)
        elif self._patience > 0.0:
            state.waiting = job
        else:
            self._end(job, JobOutcome.SKIPPED, None)

    def finish(self, number: int, now: float) -> None:
        """Record that a committed batch is done."""
        batch = self._batches.pop(number)
        stream = self._pool[batch.context].streams[batch.stream]
        stream.remove(batch)
        for ready in batch.stages:
            self._times.record_execution(ready, batch.context, batch.size, now - batch.committed)
            self._finish_stage(ready, now)

    def dispatch(self, now: float) -> list[StageBatch]:
        """Return the batches to launch now, in this order."""
        self._state.now = now
        batches: list[StageBatch] = []
        while True:
            batch = self._next_batch(now)
            if batch is None:
                return batches
            batches.append(batch)

    def close(self) -> None:
        """End the run: jobs that are active or waiting get the outcome OPEN."""
        for progress in list(self._progress.values()):
            self._end(progress.job, JobOutcome.OPEN, None)
        for state in self._tasks.values():
            if state.waiting is not None:
                self._end(state.waiting, JobOutcome.OPEN, None)

    def _task_state(self, task: PeriodicTask) -> _TaskState:
        task = task if self.policy.schedules_stages else replace(task, network=task.network.fused())
        profiles = self._profiles.get(task.network.name)
        if profiles is None or len(profiles) != len(task.network.stages):
            problem = f"{task.network.name} has no profile of its {len(task.network.stages)} stages; profile it first"
            raise RealtimeError("NoProfile", f"task {task.name}: network", problem)
        reference = max(state.spec.sms for state in self._pool)
        seconds = [profile.time(reference) for profile in profiles]
        return _TaskState(task, virtual_deadlines(task.network, seconds, task.deadline))

    def _start(self, state: _TaskState, job: PeriodicJob, now: float) -> None:
        """Ask the policy to admit the job; queue its first stages if it does."""
        self._state.now = now
        admission = self.policy.admit(job, self._state)
        if not admission.accepted:
            self._end(job, JobOutcome.REJECTED, None)
            return
        job = replace(job, context=admission.context)
        state.current = job
        self._progress[job.key] = _JobProgress(job)
        self._active[job.key] = job
        for index in job.task.network.roots:
            self._enqueue(ReadyStage(job, index, now, False))

    def _enqueue(self, ready: ReadyStage) -> None:
        context = self.policy.assign_context(ready, self._state)
        (self._shared if context is None else self._pool[context].queued).append(ready)

    def _finish_stage(self, ready: ReadyStage, now: float) -> None:
        progress = self._progress[ready.job.key]
        job, network = progress.job, progress.job.task.network
        progress.done.add(ready.index)
        progress.late = progress.late or now > ready.deadline
        if len(progress.done) == len(network.stages):
            assert progress.started is not None
            self._times.record_job(job.task, now - progress.started)
            self._end(job, JobOutcome.MET if now <= job.deadline else JobOutcome.LATE, now)
            self._start_waiting(self._tasks[job.task.name], now)
            return
        self._state.now = now
        for index in network.successors[ready.index]:
            if progress.done.issuperset(network.stages[index].after):
                self._enqueue(ReadyStage(job, index, now, progress.late))

    def _start_waiting(self, state: _TaskState, now: float) -> None:
        """Start the job that waited for the task's previous one, unless it waited too long."""
        state.current = None
        waiting, state.waiting = state.waiting, None
        if waiting is None:
            return
        if now - waiting.release > self._patience * state.task.period:
            self._end(waiting, JobOutcome.SKIPPED, None)
        else:
            self._start(state, waiting, now)

    def _end(self, job: PeriodicJob, outcome: JobOutcome, finished: float | None) -> None:
        self._progress.pop(job.key, None)
        self._active.pop(job.key, None)
        self.results.append(JobResult(job, outcome, finished))

    def _next_batch(self, now: float) -> StageBatch | None:
        """Commit a batch to the least loaded context (batches per SM) that can take one; None if none can."""
        available = [
            context
            for context in self._pool
            if (context.queued or self._shared) and context.committed < context.spec.in_flight * context.spec.depth
        ]
        # a context that can start a batch precedes one where the batch would only be launched ahead
        available.sort(key=lambda c: (not c.can_start, c.committed / c.spec.sms, c.spec.number))
        for context in available:
            batch = self._next_batch_of(context, now)
            if batch is not None:
                return batch
        return None

    def _next_batch_of(self, context: ContextState, now: float) -> StageBatch | None:
        """Commit the first stage in the order of the policy, after shedding the jobs before it if necessary."""
        key = self.policy.priority_key
        while True:
            queue = context.queued if not self._shared else [*context.queued, *self._shared]
            free = {priority for _, priority in self._free_streams(context)}
            usable = [ready for ready in queue if self.policy.stream_priority(ready) in free]
            if not usable:
                return None
            head = min(usable, key=lambda ready: (key(ready, now), ready.job.task.name, ready.index))
            progress = self._progress[head.job.key]
            if progress.started is not None:
                return self._commit(head, usable, context, now)
            waiting = sum(other.started is None for other in self._progress.values()) - 1
            if not self.policy.should_shed(head, waiting, self._state):
                return self._commit(head, usable, context, now)
            self._shed(progress.job, now)

    def _shed(self, job: PeriodicJob, now: float) -> None:
        for queue in (self._shared, *(context.queued for context in self._pool)):
            queue[:] = [ready for ready in queue if ready.job.key != job.key]
        self._times.record_shed(job.task)
        self._end(job, JobOutcome.SHED, None)
        self._start_waiting(self._tasks[job.task.name], now)

    def _free_streams(self, context: ContextState) -> list[tuple[int, int]]:
        """Return (number, priority) of the streams that can take one more batch now."""
        can_start = context.can_start
        return [
            (number, priority)
            for number, priority in enumerate(context.spec.streams)
            if (len(context.streams[number]) < context.spec.depth if context.streams[number] else can_start)
        ]

    def _commit(self, head: ReadyStage, usable: Sequence[ReadyStage], context: ContextState, now: float) -> StageBatch:
        """Commit `head`, and the stages that the policy adds to its batch, to a stream of the context."""
        key = self.policy.priority_key
        number = context.spec.number
        alike = [ready for ready in usable if ready.batch_key == head.batch_key and ready is not head]
        alike.sort(key=lambda ready: (key(ready, now), ready.job.task.name))
        stages = (head, *self.policy.batch_with(head, alike, self._state)) if alike else (head,)
        priority = self.policy.stream_priority(head)
        streams = [stream for stream, level in self._free_streams(context) if level == priority]
        stream = min(streams, key=lambda index: (len(context.streams[index]), index))
        before = max((batch.expected_finish for batch in context.streams[stream]), default=now)
        expected_finish = max(now, before) + len(stages) * self._times.stage_time(head, number)
        batch = StageBatch(self._next_number, stages, number, stream, priority, now, expected_finish)
        self._next_number += 1
        for ready in stages:
            progress = self._progress[ready.job.key]
            progress.started = now if progress.started is None else progress.started
            (context.queued if ready in context.queued else self._shared).remove(ready)
        context.streams[stream].append(batch)
        self._batches[batch.number] = batch
        return batch


def _require_distinct_networks(tasks: Sequence[PeriodicTask]) -> None:
    """Raise RealtimeError if two networks share a name, because profiles and batches use the name."""
    known: dict[str, InferenceNetwork] = {}
    for task in tasks:
        name = task.network.name
        if known.setdefault(name, task.network) != task.network:
            problem = f"{name} is the name of two different networks; give each its own name"
            raise RealtimeError("DuplicateName", f"task {task.name}: network", problem)
