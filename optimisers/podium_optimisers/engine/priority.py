"""A greedy scheduler in the order of a priority key, with or without preemption and backfilling.

At each instant the scheduler goes through the jobs in order of their keys: lower keys first, ties by arrival. Each job
that fits into the remaining GPUs gets them, and a running job that no longer fits is preempted. Only jobs that can
change places are visited: running jobs are kept sorted, and waiting jobs are in one heap for each width. Nothing
happens while no waiting job ranks above a running one.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import Protocol

from podium_optimisers.engine.simulation import JobState, Simulation
from podium_optimisers.engine.waiting_queue import QueueEntry, WaitingQueue


class JobOrdering(Protocol):
    """The priority keys of the jobs of one simulation.

    `decreasing`: whether the key of a running job decreases by one each second, as a remaining time does.
    """

    @property
    def decreasing(self) -> bool:
        """Return whether keys of running jobs decrease by one each second."""

    def key(self, job: JobState, now: float) -> float:
        """Return the job's key; jobs with lower keys run first.

        The scheduler asks for the key when the job enters the queue, when it starts and after a timer. Between these
        moments the key must not change, except as `decreasing` describes.
        """
        ...

    def next_change(self, job: JobState, now: float) -> float:
        """Return the time at which the key changes next (inf: never). `on_timer` is called then."""
        ...

    def on_timer(self, job: JobState, now: float) -> None:
        """Update the job's state when the time from `next_change` has come."""

    def on_completion(self, job: JobState, now: float) -> Iterable[JobState]:
        """Learn from a completed job and return the jobs whose keys change.

        The scheduler queues those that are waiting again under their new keys.
        """
        ...


class StaticOrdering:
    """Base class of orderings whose keys do not change from arrival to completion."""

    decreasing = False

    def next_change(self, job: JobState, now: float) -> float:
        """Return infinity: the key never changes."""
        return math.inf

    def on_timer(self, job: JobState, now: float) -> None:
        """Raise RuntimeError: this ordering sets no timers."""
        raise RuntimeError("a static ordering received a timer, but it sets none")

    def on_completion(self, job: JobState, now: float) -> Iterable[JobState]:
        """Return no jobs: a completion changes no keys."""
        return ()


class PriorityScheduler:
    """A scheduler that runs jobs in the order of their keys.

    `preemptive`: a running job can lose its GPUs to a waiting job whose key is lower by more than `margin`. `backfill`:
    a job that fits may pass a wider job that does not fit. Preemptive scheduling always backfills.
    """

    def __init__(self, ordering: JobOrdering, preemptive: bool, backfill: bool, margin: float = 0.0) -> None:
        self.ordering = ordering
        self.preemptive = preemptive
        self.backfill = backfill or preemptive
        self.margin = margin
        self._waiting = WaitingQueue()
        self._running: list[QueueEntry] = []  # sorted; a decreasing key is stored as its value at time 0
        self._running_keys: dict[int, float] = {}  # the key under which each running job is sorted, by sequence number

    def on_arrival(self, simulation: Simulation, job: JobState) -> None:
        """Queue a job that has arrived."""
        self._enqueue(simulation, job)

    def on_completion(self, simulation: Simulation, job: JobState) -> None:
        """Remove a completed job and queue again the waiting jobs whose keys changed."""
        if self.preemptive:
            self._remove_running(job)
        for other in self.ordering.on_completion(job, simulation.now):
            if other in self._waiting:
                self._enqueue(simulation, other)

    def on_timer(self, simulation: Simulation, job: JobState) -> None:
        """Let the ordering update a job's key and sort the job again."""
        self.ordering.on_timer(job, simulation.now)
        if job.placement is None:
            self._enqueue(simulation, job)
        else:
            self._remove_running(job)
            self._insert_running(simulation, job)

    def decide(self, simulation: Simulation) -> None:
        """Preempt and start jobs until no waiting job that ranks higher fits."""
        if not self._waiting:
            return
        pool, gpus = simulation.pool, simulation.cluster.gpus
        if self._running:
            head = self._waiting.head(gpus)
            if head is not None and head[0] + self._key_offset(simulation.now) < self._running[-1][0]:
                self._preempt_for(simulation, head)
        while self._waiting and pool.free:
            head = self._waiting.head(pool.free if self.backfill else gpus)
            if head is None or head[2].gpus > pool.free:
                return
            self._start(simulation, self._waiting.pop(head))

    def _preempt_for(self, simulation: Simulation, head: QueueEntry) -> None:
        """Decide between the waiting jobs and the running jobs that rank below `head`.

        Visits both in order of their keys; each job that fits into the remaining GPUs runs. O(jobs visited).
        """
        offset = self._key_offset(simulation.now)
        candidates = self._running[bisect_right(self._running, (head[0] + offset, math.inf)) :]
        free = simulation.pool.free + sum(job.gpus for _, _, job in candidates)
        preempted: list[JobState] = []
        started: list[JobState] = []
        for key, _, job in candidates:
            while (best := self._waiting.head(free)) is not None and best[0] + offset < key:
                started.append(self._waiting.pop(best))
                free -= best[2].gpus
            if job.gpus <= free:
                free -= job.gpus
            else:
                preempted.append(job)
        for job in preempted:
            self._remove_running(job)
            simulation.preempt(job)
            self._enqueue(simulation, job)
        for job in started:
            self._start(simulation, job)

    def _key_offset(self, now: float) -> float:
        """Return what makes the key of a waiting job comparable with the stored keys of running jobs."""
        return now + self.margin if self.ordering.decreasing else self.margin

    def _enqueue(self, simulation: Simulation, job: JobState) -> None:
        self._waiting.put(job, self.ordering.key(job, simulation.now))
        self._set_timer(simulation, job)

    def _start(self, simulation: Simulation, job: JobState) -> None:
        simulation.start(job)
        if self.preemptive:
            self._insert_running(simulation, job)

    def _insert_running(self, simulation: Simulation, job: JobState) -> None:
        now = simulation.now
        key = self.ordering.key(job, now)
        if self.ordering.decreasing:
            key += now
        self._running_keys[job.sequence] = key
        insort(self._running, (key, job.sequence, job))
        self._set_timer(simulation, job)

    def _remove_running(self, job: JobState) -> None:
        at = bisect_left(self._running, (self._running_keys.pop(job.sequence), job.sequence))
        del self._running[at]

    def _set_timer(self, simulation: Simulation, job: JobState) -> None:
        at = self.ordering.next_change(job, simulation.now)
        if at < math.inf:
            simulation.set_timer(job, at)
