"""The result of a simulation: when each job started and finished, and what preemption cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Floats, Ints
from podium_optimisers.engine.cluster import Placement
from podium_optimisers.engine.workload import Workload


@dataclass(frozen=True, slots=True)
class GpuAllocation:
    """An interval in which a job held GPUs, from `start` to `end` (seconds).

    The job makes progress from `ready` on, after its restart or migration.
    """

    job: int
    start: float
    ready: float
    end: float
    placement: Placement


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of one simulation. Arrays have shape (n,) in the workload's order; times are in seconds.

    `overhead` is the GPU-seconds spent on restarts and migrations. `events` counts arrivals, completions, preemptions
    and timers. `allocations` is empty unless the simulation recorded them.
    """

    policy: str
    workload: Workload
    gpus: int
    start: Floats
    finish: Floats
    preemptions: Ints
    migrations: Ints
    overhead: float
    events: int
    allocations: tuple[GpuAllocation, ...] = ()

    @property
    def completion(self) -> Floats:
        """Return the job completion times (JCT): finish minus arrival."""
        return self.finish - self.workload.arrival

    @property
    def mean_completion(self) -> float:
        """Return the mean job completion time in seconds."""
        return float(np.mean(self.completion))

    @property
    def slowdown(self) -> Floats:
        """Return each job's completion time divided by its duration, which is at least 1."""
        return self.completion / self.workload.duration

    @property
    def makespan(self) -> float:
        """Return the seconds from the first arrival to the last finish."""
        return float(np.max(self.finish) - np.min(self.workload.arrival))

    @property
    def utilisation(self) -> float:
        """Return the share of GPU-seconds between first arrival and last finish that did useful work.

        Restarts and migrations do not count as useful work.
        """
        work = float(np.sum(self.workload.duration * self.workload.gpus))
        return work / (self.gpus * self.makespan)
