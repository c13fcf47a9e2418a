"""The scheduling policies and their settings.

SJF, SAF and SRPT read the true durations, so they are oracles unless the workload holds predictions. Each policy makes
a new scheduler for each simulation: `simulate(workload, cluster, SrptPolicy(), costs)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from podium_optimisers.arrays import Floats
from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.priority import PriorityScheduler, StaticOrdering
from podium_optimisers.engine.simulation import JobState
from podium_optimisers.engine.workload import Workload
from podium_optimisers.preemptive.gittins import GittinsOrdering, GittinsTable, gittins_table
from podium_optimisers.preemptive.las import AttainedServiceOrdering


class ArrivalOrdering(StaticOrdering):
    """FIFO: all keys are equal, so ties by arrival decide."""

    def key(self, job: JobState, now: float) -> float:
        """Return 0."""
        return 0.0


class DurationOrdering(StaticOrdering):
    """SJF: by duration."""

    def key(self, job: JobState, now: float) -> float:
        """Return the duration."""
        return job.duration


class AreaOrdering(StaticOrdering):
    """By GPU-seconds, duration x width: the capacity that a job keeps from the others."""

    def key(self, job: JobState, now: float) -> float:
        """Return the GPU-seconds."""
        return job.duration * job.gpus


@dataclass(frozen=True, slots=True)
class RemainingTimeOrdering(StaticOrdering):
    """SRPT: by the seconds until the job would complete if it kept its GPUs, a restart included.

    SRPT minimises the mean completion time on one machine (Schrage, Operations Research 16(3), 1968). On several
    machines and for gangs it is a heuristic.
    """

    costs: PreemptionCosts
    decreasing = True

    def key(self, job: JobState, now: float) -> float:
        """Return the remaining seconds."""
        if job.placement is not None:
            return job.finish - now
        left = job.duration - job.done
        return left if job.last_placement is None else left + self.costs.restart


@dataclass(frozen=True, slots=True)
class FifoPolicy:
    """First in, first out. By default no job passes a gang that does not fit yet."""

    backfill: bool = False
    name: str = "fifo"

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> PriorityScheduler:
        """Return a new scheduler."""
        return PriorityScheduler(ArrivalOrdering(), preemptive=False, backfill=self.backfill)


@dataclass(frozen=True, slots=True)
class SjfPolicy:
    """Shortest job first by true duration. A job that has started keeps its GPUs."""

    backfill: bool = True
    name: str = "sjf"

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> PriorityScheduler:
        """Return a new scheduler."""
        return PriorityScheduler(DurationOrdering(), preemptive=False, backfill=self.backfill)


@dataclass(frozen=True, slots=True)
class SafPolicy:
    """Smallest area first: least duration x width. A job that has started keeps its GPUs."""

    backfill: bool = True
    name: str = "saf"

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> PriorityScheduler:
        """Return a new scheduler."""
        return PriorityScheduler(AreaOrdering(), preemptive=False, backfill=self.backfill)


@dataclass(frozen=True, slots=True)
class SrptPolicy:
    """Shortest remaining processing time (SRTF).

    A job is preempted only by a job that is shorter by more than the cost of resuming the first one.
    """

    name: str = "srpt"

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> PriorityScheduler:
        """Return a new scheduler."""
        return PriorityScheduler(RemainingTimeOrdering(costs), preemptive=True, backfill=True, margin=costs.worst)


@dataclass(frozen=True, slots=True)
class LasPolicy:
    """Least attained service, by default with two queues.

    The default threshold of 18000 GPU-seconds is 5 GPU-hours.
    """

    thresholds: tuple[float, ...] = (18000.0,)
    promote: float = math.inf
    name: str = "las"

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> PriorityScheduler:
        """Return a new scheduler. Raise ValueError for invalid thresholds."""
        return PriorityScheduler(AttainedServiceOrdering(self.thresholds, self.promote), preemptive=True, backfill=True)


@dataclass(frozen=True, slots=True)
class GittinsPolicy:
    """Highest Gittins index first. Make one with `GittinsPolicy.fit(duration * gpus of completed jobs)`."""

    table: GittinsTable
    name: str = "gittins"

    @classmethod
    def fit(cls, services: Floats, steps: int = 64) -> GittinsPolicy:
        """Return the policy for the distribution of these services (GPU-seconds, shape (n,))."""
        return cls(gittins_table(services, steps))

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> PriorityScheduler:
        """Return a new scheduler."""
        return PriorityScheduler(GittinsOrdering(self.table), preemptive=True, backfill=True)
