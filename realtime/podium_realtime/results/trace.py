"""Execution traces: every release with its outcome and every batch with its times."""

from __future__ import annotations

from dataclasses import dataclass

from podium_realtime.scheduling.jobs import JobResult, StageBatch


@dataclass(frozen=True, slots=True)
class BatchExecution:
    """A batch that ran, with times in seconds since the start of the run.

    `started`: time at which the batch received SMs (or its core).
    """

    batch: StageBatch
    started: float
    finished: float


@dataclass(frozen=True, slots=True)
class ScheduleTrace:
    """One run of `seconds`: all jobs in the order in which they ended, and the batches that finished."""

    seconds: float
    jobs: tuple[JobResult, ...]
    executions: tuple[BatchExecution, ...]
