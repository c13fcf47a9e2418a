"""Runs any order of jobs on the engine: greedy by key, with or without preemption, with or without filling gaps.

At each instant the jobs are walked in order of their keys (lower first, ties by arrival); each that fits into what is
left gets its GPUs, and a running job that no longer fits loses them. Only what can have changed is walked: running jobs
stay sorted, waiting ones sit in one heap for each width, and nothing is done while no waiting job beats a running one.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import Protocol

from podium_optimisers.engine.queue import Entry, WaitingQueue
from podium_optimisers.engine.simulation import JobState, Simulation


class Ordering(Protocol):
    """The keys of one simulation. `falling`: a running job's key falls by one a second (it is a time that is left)."""

    @property
    def falling(self) -> bool: ...

    def key(self, job: JobState, now: float) -> float:
        """Lower goes first. Asked when the job comes to the queue, when it starts and after an alarm; must not change
        by itself in between, but for `falling`.
        """
        ...

    def changes(self, job: JobState, now: float) -> float:
        """When the key changes by itself (inf: never); `alarmed` is called then."""
        ...

    def alarmed(self, job: JobState, now: float) -> None: ...

    def finished(self, job: JobState, now: float) -> Iterable[JobState]:
        """What is learned from a job that has ended: the jobs whose keys it changes (those that wait are queued
        anew).
        """
        ...


class Static:
    """Base for orders whose key is fixed from arrival to end."""

    falling = False

    def changes(self, job: JobState, now: float) -> float:
        return math.inf

    def alarmed(self, job: JobState, now: float) -> None:
        raise RuntimeError("an order without changes set no alarm")

    def finished(self, job: JobState, now: float) -> Iterable[JobState]:
        return ()


class PriorityDecider:
    """`preemptive`: running jobs may lose their GPUs to a job whose key is lower by more than `margin`; `backfill`:
    what fits may pass a wider job that does not (with preemption it always may).
    """

    def __init__(self, ordering: Ordering, preemptive: bool, backfill: bool, margin: float = 0.0) -> None:
        self.ordering = ordering
        self.preemptive = preemptive
        self.backfill = backfill or preemptive
        self.margin = margin
        self._waiting = WaitingQueue()
        self._running: list[Entry] = []  # sorted; key of a falling order: as if at time 0
        self._places: dict[int, float] = {}  # the key under which a running job is sorted, by sequence

    def arrived(self, simulation: Simulation, job: JobState) -> None:
        self._queue(simulation, job)

    def finished(self, simulation: Simulation, job: JobState) -> None:
        if self.preemptive:
            self._forget(job)
        for other in self.ordering.finished(job, simulation.now):
            if other in self._waiting:
                self._queue(simulation, other)

    def alarmed(self, simulation: Simulation, job: JobState) -> None:
        self.ordering.alarmed(job, simulation.now)
        if job.place is None:
            self._queue(simulation, job)
        else:
            self._forget(job)
            self._sort_in(simulation, job)

    def decide(self, simulation: Simulation) -> None:
        if not self._waiting:
            return
        pool, gpus = simulation.pool, simulation.cluster.gpus
        if self._running:
            head = self._waiting.head(gpus)
            if head is not None and head[0] + self._shift(simulation.now) < self._running[-1][0]:
                self._contest(simulation, head)
        while self._waiting and pool.free:
            head = self._waiting.head(pool.free if self.backfill else gpus)
            if head is None or head[2].gpus > pool.free:
                return
            self._start(simulation, self._waiting.pop(head))

    def _contest(self, simulation: Simulation, head: Entry) -> None:
        """Walks the running jobs behind `head` and the waiting ones together, best first; who fits is in. O(walked)."""
        shift = self._shift(simulation.now)
        contested = self._running[bisect_right(self._running, (head[0] + shift, math.inf)) :]
        free = simulation.pool.free + sum(job.gpus for _, _, job in contested)
        losers: list[JobState] = []
        winners: list[JobState] = []
        for key, _, job in contested:
            while (best := self._waiting.head(free)) is not None and best[0] + shift < key:
                winners.append(self._waiting.pop(best))
                free -= best[2].gpus
            if job.gpus <= free:
                free -= job.gpus
            else:
                losers.append(job)
        for job in losers:
            self._forget(job)
            simulation.preempt(job)
            self._queue(simulation, job)
        for job in winners:
            self._start(simulation, job)

    def _shift(self, now: float) -> float:
        """What makes a waiting job's key comparable with those of the running."""
        return now + self.margin if self.ordering.falling else self.margin

    def _queue(self, simulation: Simulation, job: JobState) -> None:
        self._waiting.put(job, self.ordering.key(job, simulation.now))
        self._set_alarm(simulation, job)

    def _start(self, simulation: Simulation, job: JobState) -> None:
        simulation.start(job)
        if self.preemptive:
            self._sort_in(simulation, job)

    def _sort_in(self, simulation: Simulation, job: JobState) -> None:
        now = simulation.now
        key = self.ordering.key(job, now)
        if self.ordering.falling:
            key += now
        self._places[job.sequence] = key
        insort(self._running, (key, job.sequence, job))
        self._set_alarm(simulation, job)

    def _forget(self, job: JobState) -> None:
        at = bisect_left(self._running, (self._places.pop(job.sequence), job.sequence))
        del self._running[at]

    def _set_alarm(self, simulation: Simulation, job: JobState) -> None:
        at = self.ordering.changes(job, simulation.now)
        if at < math.inf:
            simulation.alarm(job, at)
