"""Invariants that hold for every run under every policy.

The property tests check them on the simulated GPU, the contract tests on real cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podium_realtime.results.trace import BatchExecution, ScheduleTrace
from podium_realtime.scheduling.jobs import JobOutcome, ReadyStage
from podium_realtime.scheduling.policy import SchedulingPolicy
from podium_realtime.scheduling.pool import ContextSpec

_ROUNDING = 1e-9  # seconds


def violations(
    trace: ScheduleTrace, pool: Sequence[ContextSpec], policy: SchedulingPolicy, shared_queue: bool
) -> list[str]:
    """Return a sentence for each violated invariant; the list is empty for a correct run.

    `shared_queue`: whether the policy binds stages to contexts only when they start.
    """
    return [
        *_precedence(trace),
        *_capacity(trace, pool),
        *_stream_order(trace),
        *_priority_order(trace, policy, shared_queue),
        *_outcomes(trace),
    ]


def _precedence(trace: ScheduleTrace) -> Iterator[str]:
    """Check that no stage starts before its predecessors are done, and that none runs twice."""
    done: dict[tuple[tuple[str, int], int], float] = {}
    for execution in trace.executions:
        for ready in execution.batch.stages:
            if (ready.job.key, ready.index) in done:
                yield f"{_name(ready)} ran twice"
            done[(ready.job.key, ready.index)] = execution.finished
    for execution in trace.executions:
        for ready in execution.batch.stages:
            for before in ready.stage.after:
                finished = done.get((ready.job.key, before))
                if finished is None or finished > execution.started + _ROUNDING:
                    started = f"{_name(ready)} started at {execution.started:.6f}"
                    yield f"{started}, but stage {before} finished at {finished}"


def _capacity(trace: ScheduleTrace, pool: Sequence[ContextSpec]) -> Iterator[str]:
    """Check that a context has at most `in_flight` batches running and `in_flight` x `depth` committed."""
    for context in pool:
        own = [execution for execution in trace.executions if execution.batch.context == context.number]
        running = _max_overlap([(execution.started, execution.finished) for execution in own])
        if running > context.in_flight:
            yield f"context {context.number} ran {running} batches at once, but {context.in_flight} are allowed"
        committed = _max_overlap([(execution.batch.committed, execution.finished) for execution in own])
        if committed > context.in_flight * context.depth:
            allowed = f"{context.in_flight} x {context.depth}"
            yield f"context {context.number} had {committed} committed batches, but {allowed} are allowed"


def _stream_order(trace: ScheduleTrace) -> Iterator[str]:
    """Check that each stream runs one batch at a time, in the order of commitment."""
    last: dict[tuple[int, int], BatchExecution] = {}
    for execution in sorted(trace.executions, key=lambda execution: execution.batch.number):
        stream = (execution.batch.context, execution.batch.stream)
        before = last.get(stream)
        if before is not None and execution.started < before.finished - _ROUNDING:
            yield f"stream {stream} started batch {execution.batch.number} before batch {before.batch.number} finished"
        last[stream] = execution


def _priority_order(trace: ScheduleTrace, policy: SchedulingPolicy, shared_queue: bool) -> Iterator[str]:
    """Check that each committed stage had the smallest key of those that waited for the same streams."""
    executions = sorted(trace.executions, key=lambda execution: execution.batch.number)
    for index, execution in enumerate(executions):
        head, committed = execution.batch.stages[0], execution.batch.committed
        for later in executions[index + 1 :]:
            if not shared_queue and later.batch.context != execution.batch.context:
                continue
            for ready in later.batch.stages:
                same_streams = policy.stream_priority(ready) is policy.stream_priority(head)
                waited = ready.ready_at < committed - _ROUNDING and same_streams
                if waited and policy.priority_key(ready, committed) < policy.priority_key(head, committed):
                    yield f"{_name(head)} ran before {_name(ready)} at {committed:.6f}"


def _outcomes(trace: ScheduleTrace) -> Iterator[str]:
    """Check that each release ends once, and that MET and LATE agree with the deadline."""
    seen: set[tuple[str, int]] = set()
    for result in trace.jobs:
        job, outcome, finished = result.job, result.outcome, result.finished
        if job.key in seen:
            yield f"{job.key} ended twice"
        seen.add(job.key)
        if (finished is not None) != (outcome in (JobOutcome.MET, JobOutcome.LATE)):
            yield f"{job.key} has the outcome {outcome.value}, but finished at {finished}"
        if finished is not None and (finished <= job.deadline) != (outcome is JobOutcome.MET):
            yield f"{job.key} has the outcome {outcome.value}, finished {finished:.6f}, deadline {job.deadline:.6f}"


def _max_overlap(intervals: Sequence[tuple[float, float]]) -> int:
    """Return the largest number of intervals that overlap; intervals that only touch do not overlap."""
    events = sorted([(end - _ROUNDING, -1) for _, end in intervals] + [(start, 1) for start, _ in intervals])
    largest = current = 0
    for _, step in events:
        current += step
        largest = max(largest, current)
    return largest


def _name(ready: ReadyStage) -> str:
    return f"stage {ready.index} of {ready.job.task.name} #{ready.job.number}"
