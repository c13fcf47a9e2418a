"""The event loop of the simulator: virtual time, one scheduling decision for each instant with events.

`simulate` runs a policy to the end; the gymnasium environment advances step by step. At one instant, completions are
processed before timers and timers before arrivals. Remaining ties go by arrival, then by row of the workload. There is
no clock and no randomness, so results are reproducible to the bit.
"""

from __future__ import annotations

import heapq
import math
from typing import Protocol

import numpy as np

from podium_optimisers.arrays import Ints
from podium_optimisers.engine.cluster import GpuCluster, GpuPool, Placement, PreemptionCosts, is_migration
from podium_optimisers.engine.result import GpuAllocation, SimulationResult
from podium_optimisers.engine.workload import Workload

COMPLETION, TIMER = 0, 1  # the order of events at one instant; arrivals come last


class JobState:
    """State of one job in the system. The simulation writes all fields except `level`.

    `done`: seconds of work kept up to the last preemption. `ready`: when the job makes progress in its current
    allocation. `finish`: when it completes if it is not preempted. `allocated_at`: when it got its GPUs.
    `waiting_since`: when it last entered the queue. `placement`: its GPUs, None while it waits. `last_placement`: its
    previous GPUs. `epoch`: the number of starts and preemptions. `level`: free for use by the ordering.
    """

    __slots__ = (
        "allocated_at",
        "arrival",
        "done",
        "duration",
        "epoch",
        "finish",
        "gpus",
        "index",
        "last_placement",
        "level",
        "placement",
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
        self.allocated_at = math.nan
        self.ready = math.nan
        self.finish = math.inf
        self.waiting_since = arrival
        self.placement: Placement | None = None
        self.last_placement: Placement | None = None
        self.epoch = 0
        self.level = 0

    def attained(self, now: float) -> float:
        """Return the seconds of work completed by `now`."""
        if self.placement is None or now <= self.ready:
            return self.done
        return min(self.duration, self.done + now - self.ready)


class JobScheduler(Protocol):
    """A policy's state in one simulation.

    `decide` is called once for each instant, after the calls for all events of that instant.
    """

    def on_arrival(self, simulation: Simulation, job: JobState) -> None:
        """Handle the arrival of a job."""

    def on_completion(self, simulation: Simulation, job: JobState) -> None:
        """Handle the completion of a job."""

    def on_timer(self, simulation: Simulation, job: JobState) -> None:
        """Handle a timer that the scheduler set for a job."""

    def decide(self, simulation: Simulation) -> None:
        """Start and preempt jobs at the current instant."""


class SchedulingPolicy(Protocol):
    """A scheduling policy. It makes a new scheduler for each simulation, so it can be used many times."""

    @property
    def name(self) -> str:
        """Return the name of the policy in tables and messages."""

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> JobScheduler:
        """Return a new scheduler for one simulation."""


class Simulation:
    """One simulation run. `advance` moves to the next instant; a scheduler calls `start` and `preempt`.

    An event takes O(log n) besides the scheduler's own work. Raises WorkloadError if a job is wider than the cluster.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: GpuCluster,
        policy: SchedulingPolicy,
        costs: PreemptionCosts | None = None,
        record: bool = False,
    ) -> None:
        workload.check_width(cluster.gpus)
        self.workload = workload
        self.cluster = cluster
        self.costs = costs if costs is not None else PreemptionCosts()
        self.policy = policy.name
        self.pool = GpuPool(cluster)
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
        self._next_arrival = 0
        self._heap: list[tuple[float, int, int, int, JobState]] = []
        self._start = [math.nan] * len(workload)
        self._finish = [math.nan] * len(workload)
        self._preemptions: dict[int, int] = {}
        self._migrations: dict[int, int] = {}
        self._allocations: list[GpuAllocation] | None = [] if record else None
        self.scheduler = policy.make_scheduler(workload, cluster, self.costs)

    def advance(self) -> bool:
        """Move to the next instant with events and call the scheduler's handlers. Return False at the end."""
        heap, scheduler = self._heap, self.scheduler
        while heap and heap[0][4].epoch != heap[0][3]:
            heapq.heappop(heap)
        upcoming = self._arrivals[self._next_arrival] if self._next_arrival < len(self._arrivals) else math.inf
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
            if kind == COMPLETION:
                self._complete(job)
                scheduler.on_completion(self, job)
            else:
                scheduler.on_timer(self, job)
        while upcoming <= now:
            at = self._next_arrival
            self._next_arrival = at + 1
            self.events += 1
            scheduler.on_arrival(self, JobState(self._rows[at], at, upcoming, self._durations[at], self._widths[at]))
            upcoming = self._arrivals[at + 1] if at + 1 < len(self._arrivals) else math.inf
        return True

    def run(self) -> SimulationResult:
        """Run to the end. Raise RuntimeError if the policy lets jobs wait forever."""
        advance, decide = self.advance, self.scheduler.decide
        while advance():
            decide(self)
        return self.result()

    def start(self, job: JobState, node: int | None = None) -> None:
        """Allocate GPUs to a waiting job now, on `node` if it is given.

        Raises RuntimeError if the job is running or does not fit.
        """
        if job.placement is not None or job.gpus > self.pool.free:
            raise RuntimeError(
                f"job {self.workload.name(job.index)} cannot start: it is already running or does not fit"
            )
        now, last = self.now, job.last_placement
        placement = self.pool.choose_gpus(job.gpus, last) if node is None else self.pool.choose_gpus_on(node, job.gpus)
        self.pool.allocate(placement)
        overhead = 0.0
        if last is None:
            self._start[job.index] = now
        elif is_migration(last, placement):
            overhead = self.costs.migration
            self._migrations[job.index] = self._migrations.get(job.index, 0) + 1
        else:
            overhead = self.costs.restart
        job.placement = placement
        job.allocated_at = now
        job.ready = now + overhead
        job.finish = job.ready + (job.duration - job.done)
        job.epoch += 1
        self.running += 1
        heapq.heappush(self._heap, (job.finish, COMPLETION, job.sequence, job.epoch, job))

    def preempt(self, job: JobState) -> None:
        """Take the GPUs of a running job; its work is kept. Raise RuntimeError if the job is not running."""
        if job.placement is None:
            raise RuntimeError(f"job {self.workload.name(job.index)} cannot be preempted: it is not running")
        done = job.attained(self.now)
        self._release(job)
        job.done = done
        job.finish = math.inf
        job.waiting_since = self.now
        self.events += 1
        self._preemptions[job.index] = self._preemptions.get(job.index, 0) + 1

    def set_timer(self, job: JobState, at: float) -> None:
        """Set a timer: call the scheduler's `on_timer` at time `at`.

        The timer is dropped if the job starts, is preempted or completes before that time.
        """
        heapq.heappush(self._heap, (max(at, self.now), TIMER, job.sequence, job.epoch, job))

    def result(self) -> SimulationResult:
        """Return the result of a finished simulation. Raise RuntimeError if a job has not completed."""
        if self.unfinished:
            stuck = next(row for row, finish in enumerate(self._finish) if math.isnan(finish))
            raise RuntimeError(f"policy {self.policy} left job {self.workload.name(stuck)} waiting forever")
        return SimulationResult(
            self.policy,
            self.workload,
            self.cluster.gpus,
            np.array(self._start),
            np.array(self._finish),
            _column(self._preemptions, len(self.workload)),
            _column(self._migrations, len(self.workload)),
            self.overhead,
            self.events,
            tuple(self._allocations or ()),
        )

    def _complete(self, job: JobState) -> None:
        self._release(job)
        job.done = job.duration
        self._finish[job.index] = self.now
        self.unfinished -= 1

    def _release(self, job: JobState) -> None:
        """Release the job's GPUs and account for the allocation that ends."""
        placement = job.placement
        assert placement is not None
        self.pool.release(placement)
        self.running -= 1
        self.overhead += job.gpus * (min(job.ready, self.now) - job.allocated_at)
        if self._allocations is not None:
            self._allocations.append(
                GpuAllocation(job.index, job.allocated_at, min(job.ready, self.now), self.now, placement)
            )
        job.last_placement = placement
        job.placement = None
        job.epoch += 1


def simulate(
    workload: Workload,
    cluster: GpuCluster,
    policy: SchedulingPolicy,
    costs: PreemptionCosts | None = None,
    record: bool = False,
) -> SimulationResult:
    """Run `policy` on `workload` to the end. `record` keeps all GPU allocations.

    Raises WorkloadError (JobTooLarge) if a job is wider than the cluster.
    """
    return Simulation(workload, cluster, policy, costs, record).run()


def _column(counts: dict[int, int], length: int) -> Ints:
    """Return counts by row as an array of this length."""
    column = np.zeros(length, dtype=np.int64)
    for row, count in counts.items():
        column[row] = count
    return column
