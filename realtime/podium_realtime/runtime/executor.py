"""Runs the dispatcher on the machine's clock with the partitions of a back-end."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence

from podium_realtime.model.profile import Profiles
from podium_realtime.model.task import PeriodicTask
from podium_realtime.results.trace import BatchExecution, ScheduleTrace
from podium_realtime.runtime.backend import BackendSession
from podium_realtime.scheduling.dispatcher import Dispatcher
from podium_realtime.scheduling.jobs import StageBatch
from podium_realtime.scheduling.policy import SchedulingPolicy
from podium_realtime.scheduling.pool import ContextSpec

LONGEST_WAIT = 0.2  # seconds


def execute(
    session: BackendSession,
    tasks: Sequence[PeriodicTask],
    pool: Sequence[ContextSpec],
    profiles: Profiles,
    policy: SchedulingPolicy,
    seconds: float,
    *,
    patience: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> ScheduleTrace:
    """Run the tasks for `seconds` and return the trace.

    Back-ends reject batches of several frames (NoBatches), so the policy must not make any. The function waits for the
    batches that run at the end, but does not count them. For `patience` see Dispatcher.
    """
    dispatcher = Dispatcher(tasks, pool, profiles, policy, patience)
    start = clock()
    releases = [(task.offset, number, 0) for number, task in enumerate(tasks)]
    heapq.heapify(releases)
    running: dict[int, StageBatch] = {}
    executions: list[BatchExecution] = []
    while True:
        now = clock() - start
        if now >= seconds:
            break
        while releases and releases[0][0] <= now:
            due, number, count = heapq.heappop(releases)
            task = tasks[number]
            dispatcher.release(task.name, due)  # the release time is the due time, even if this loop is late
            heapq.heappush(releases, (task.offset + (count + 1) * task.period, number, count + 1))
        for batch in dispatcher.dispatch(now):
            session.submit(batch)
            running[batch.number] = batch
        wake = min(releases[0][0] if releases else seconds, seconds, now + LONGEST_WAIT)
        for done in session.wait(wake - (clock() - start)):
            # the finish time includes the message from the worker, because only then can the result be used
            dispatcher.finish(done.number, clock() - start)
            executions.append(BatchExecution(running.pop(done.number), done.started - start, done.finished - start))
    while running:
        for done in session.wait(LONGEST_WAIT):
            running.pop(done.number)
    dispatcher.close()
    return ScheduleTrace(seconds, tuple(dispatcher.results), tuple(executions))
