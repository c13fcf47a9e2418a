"""The event loop: virtual time, one decision for each instant at which something happened. Deterministic to the bit.

Called by `simulate` (policies) and step by step by the gymnasium environment. Ends come before alarms, alarms before
arrivals; what ties still goes by arrival, then by row of the workload. No clock, no randomness.
"""

from __future__ import annotations

import heapq
import math
from typing import Protocol

import numpy as np

from podium_optimisers.engine.cluster import Cluster, Costs, Place, Pool, moved
from podium_optimisers.engine.outcome import Outcome, Span
from podium_optimisers.engine.workload import Ints, Workload

END, ALARM = 0, 1  # order of events of one instant; arrivals come last


class JobState:
    """One job that is in the system. Only the simulation writes it, but for `level`, which is the decider's own note.

    `done`: seconds of work kept so far (up to the last preemption); `ready`: when it goes on working in this stretch;
    `finish`: when it ends if left alone; `began`: when it got its GPUs; `waiting_since`: when it last came to the
    queue; `place`: its GPUs, None while it waits; `epoch` counts starts and preemptions.
    """

    __slots__ = (
        "arrival",
        "began",
        "done",
        "duration",
        "epoch",
        "finish",
        "gpus",
        "index",
        "last",
        "level",
        "place",
        "ready",
        "sequence",
        "waiting_since",
    )

    def __init__(self, index: int, sequence: int, arrival: float, duration: float, gpus: int) -> None:
        self.index = index
        self.sequence = sequence
        self.arrival = arrival
        self.duration = duration
        self.gpus = gpus
        self.done = 0.0
        self.began = math.nan
        self.ready = math.nan
        self.finish = math.inf
        self.waiting_since = arrival
        self.place: Place | None = None
        self.last: Place | None = None
        self.epoch = 0
        self.level = 0

    def attained(self, now: float) -> float:
        """Seconds of work done by `now`."""
        if self.place is None or now <= self.ready:
            return self.done
        return min(self.duration, self.done + now - self.ready)


class Decider(Protocol):
    """A policy at work in one simulation. `decide` is called once an instant, after what happened was told."""

    def arrived(self, simulation: Simulation, job: JobState) -> None: ...

    def finished(self, simulation: Simulation, job: JobState) -> None: ...

    def alarmed(self, simulation: Simulation, job: JobState) -> None: ...

    def decide(self, simulation: Simulation) -> None: ...


class Policy(Protocol):
    """What makes a fresh decider for each simulation, so that one policy can be run many times."""

    @property
    def name(self) -> str: ...

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> Decider: ...


class Simulation:
    """One run. `advance` moves to the next instant; `start` and `preempt` are what a decider may do there.

    O(log n) an event beside what the decider takes. Errors: WorkloadError when a job is wider than the cluster.
    """

    def __init__(
        self, workload: Workload, cluster: Cluster, policy: Policy, costs: Costs | None = None, record: bool = False
    ) -> None:
        workload.check_width(cluster.gpus)
        self.workload = workload
        self.cluster = cluster
        self.costs = costs if costs is not None else Costs()
        self.policy = policy.name
        self.pool = Pool(cluster)
        self.now = 0.0
        self.unfinished = len(workload)
        self.running = 0
        self.events = 0
        self.overhead = 0.0
        order = np.lexsort((np.arange(len(workload)), workload.arrival))
        self._rows: list[int] = order.tolist()
        self._arrivals: list[float] = workload.arrival[order].tolist()
        self._durations: list[float] = workload.duration[order].tolist()
        self._widths: list[int] = workload.gpus[order].tolist()
        self._next = 0
        self._heap: list[tuple[float, int, int, int, JobState]] = []
        self._start = [math.nan] * len(workload)
        self._finish = [math.nan] * len(workload)
        self._preemptions: dict[int, int] = {}
        self._migrations: dict[int, int] = {}
        self._spans: list[Span] | None = [] if record else None
        self.decider = policy.begin(workload, cluster, self.costs)

    def advance(self) -> bool:
        """To the next instant at which something happens, and tell the decider. False when nothing is left."""
        heap, decider = self._heap, self.decider
        while heap and heap[0][4].epoch != heap[0][3]:
            heapq.heappop(heap)
        upcoming = self._arrivals[self._next] if self._next < len(self._arrivals) else math.inf
        if heap and heap[0][0] <= upcoming:
            now = heap[0][0]
        elif upcoming < math.inf:
            now = upcoming
        else:
            return False
        self.now = now
        while heap and heap[0][0] <= now:
            _, kind, _, epoch, job = heapq.heappop(heap)
            if job.epoch != epoch:
                continue
            self.events += 1
            if kind == END:
                self._end(job)
                decider.finished(self, job)
            else:
                decider.alarmed(self, job)
        while upcoming <= now:
            at = self._next
            self._next = at + 1
            self.events += 1
            decider.arrived(self, JobState(self._rows[at], at, upcoming, self._durations[at], self._widths[at]))
            upcoming = self._arrivals[at + 1] if at + 1 < len(self._arrivals) else math.inf
        return True

    def run(self) -> Outcome:
        """To the end. Errors: RuntimeError when the policy leaves jobs waiting for ever."""
        advance, decide = self.advance, self.decider.decide
        while advance():
            decide(self)
        return self.outcome()

    def start(self, job: JobState, node: int | None = None) -> None:
        """Gives a waiting job its GPUs now, on `node` if one is named. Errors: RuntimeError when it runs already or
        does not fit.
        """
        if job.place is not None or job.gpus > self.pool.free:
            raise RuntimeError(f"job {self.workload.name(job.index)} cannot start: it runs already or does not fit")
        now, last = self.now, job.last
        place = self.pool.place(job.gpus, last) if node is None else self.pool.place_on(node, job.gpus)
        self.pool.take(place)
        overhead = 0.0
        if last is None:
            self._start[job.index] = now
        elif moved(last, place):
            overhead = self.costs.migration
            self._migrations[job.index] = self._migrations.get(job.index, 0) + 1
        else:
            overhead = self.costs.restart
        job.place = place
        job.began = now
        job.ready = now + overhead
        job.finish = job.ready + (job.duration - job.done)
        job.epoch += 1
        self.running += 1
        heapq.heappush(self._heap, (job.finish, END, job.sequence, job.epoch, job))

    def preempt(self, job: JobState) -> None:
        """Takes a running job's GPUs; its work is kept. Errors: RuntimeError when it does not run."""
        if job.place is None:
            raise RuntimeError(f"job {self.workload.name(job.index)} cannot be preempted: it does not run")
        done = job.attained(self.now)
        self._leave(job)
        job.done = done
        job.finish = math.inf
        job.waiting_since = self.now
        self.events += 1
        self._preemptions[job.index] = self._preemptions.get(job.index, 0) + 1

    def alarm(self, job: JobState, at: float) -> None:
        """The decider's `alarmed` is called at `at`, unless the job starts, is preempted or ends before."""
        heapq.heappush(self._heap, (max(at, self.now), ALARM, job.sequence, job.epoch, job))

    def outcome(self) -> Outcome:
        if self.unfinished:
            stuck = next(row for row, finish in enumerate(self._finish) if math.isnan(finish))
            raise RuntimeError(f"policy {self.policy} left job {self.workload.name(stuck)} waiting for ever")
        return Outcome(
            self.policy,
            self.workload,
            self.cluster.gpus,
            np.array(self._start),
            np.array(self._finish),
            _column(self._preemptions, len(self.workload)),
            _column(self._migrations, len(self.workload)),
            self.overhead,
            self.events,
            tuple(self._spans or ()),
        )

    def _end(self, job: JobState) -> None:
        self._leave(job)
        job.done = job.duration
        self._finish[job.index] = self.now
        self.unfinished -= 1

    def _leave(self, job: JobState) -> None:
        place = job.place
        assert place is not None
        self.pool.release(place)
        self.running -= 1
        self.overhead += job.gpus * (min(job.ready, self.now) - job.began)
        if self._spans is not None:
            self._spans.append(Span(job.index, job.began, min(job.ready, self.now), self.now, place))
        job.last = place
        job.place = None
        job.epoch += 1


def simulate(
    workload: Workload, cluster: Cluster, policy: Policy, costs: Costs | None = None, record: bool = False
) -> Outcome:
    """Runs `policy` on `workload` to the end; `record` keeps every span. Errors: WorkloadError (JobTooLarge)."""
    return Simulation(workload, cluster, policy, costs, record).run()


def _column(counts: dict[int, int], length: int) -> Ints:
    column = np.zeros(length, dtype=np.int64)
    for row, count in counts.items():
        column[row] = count
    return column
