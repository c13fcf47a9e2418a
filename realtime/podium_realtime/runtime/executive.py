"""The executive: the dispatcher of `scheduling` on the machine's clock, with a back-end's partitions.

The same policies that run in the simulator run here. Called by `podium realtime run` and by the benchmark.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence

from podium_realtime.model.profile import Profiles
from podium_realtime.model.task import PeriodicTask
from podium_realtime.record.run import Run, Span
from podium_realtime.runtime.backend import Session
from podium_realtime.scheduling.base import Policy
from podium_realtime.scheduling.dispatcher import Dispatcher
from podium_realtime.scheduling.pool import ContextSpec
from podium_realtime.scheduling.work import Work

LONGEST_WAIT = 0.2  # seconds; a longer sleep has nothing to wait for


def execute(
    session: Session,
    tasks: Sequence[PeriodicTask],
    pool: Sequence[ContextSpec],
    profiles: Profiles,
    policy: Policy,
    seconds: float,
    *,
    patience: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Run:
    """Runs for `seconds` on the clock; times in the result count from the start. Back-ends refuse batches (NoBatches),
    so give policies that make none. Works under way at the end are awaited, not counted.
    """
    dispatcher = Dispatcher(tasks, pool, profiles, policy, patience)
    start = clock()
    releases = [(task.offset, number, 0) for number, task in enumerate(tasks)]
    heapq.heapify(releases)
    under_way: dict[int, Work] = {}
    spans: list[Span] = []
    while True:
        now = clock() - start
        if now >= seconds:
            break
        while releases and releases[0][0] <= now:
            due, number, count = heapq.heappop(releases)
            task = tasks[number]
            dispatcher.release(task.name, due)  # a release is when it was due, however late we look
            heapq.heappush(releases, (task.offset + (count + 1) * task.period, number, count + 1))
        for work in dispatcher.dispatch(now):
            session.submit(work)
            under_way[work.number] = work
        wake = min(releases[0][0] if releases else seconds, seconds, now + LONGEST_WAIT)
        for done in session.wait(wake - (clock() - start)):
            # a frame is done when it is known to be: the way from the worker to here counts
            dispatcher.finish(done.number, clock() - start)
            spans.append(Span(under_way.pop(done.number), done.began - start, done.ended - start))
    while under_way:
        for done in session.wait(LONGEST_WAIT):
            under_way.pop(done.number)
    dispatcher.close()
    return Run(seconds, tuple(dispatcher.ends), tuple(spans))
