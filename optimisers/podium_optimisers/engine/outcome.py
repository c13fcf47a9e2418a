"""What a simulated run gave: when each job began and ended, and what was spent. Made by the simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.engine.cluster import Place
from podium_optimisers.engine.workload import Floats, Ints, Workload


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of a job on its GPUs: held from `start`, at work from `ready` (after restart or move) to `end`."""

    job: int
    start: float
    ready: float
    end: float
    place: Place


@dataclass(frozen=True, slots=True)
class Outcome:
    """Columns of shape (n,) in the workload's order; times in seconds. `overhead` is GPU-seconds spent on restarts
    and moves; `events` counts arrivals, ends, preemptions and alarms; `spans` is empty unless recording was asked for.
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
    spans: tuple[Span, ...] = ()

    @property
    def completion(self) -> Floats:
        """Job completion times (JCT): end minus arrival."""
        return self.finish - self.workload.arrival

    @property
    def mean_completion(self) -> float:
        return float(np.mean(self.completion))

    @property
    def slowdown(self) -> Floats:
        """Completion time over the job's own duration, at least 1."""
        return self.completion / self.workload.duration

    @property
    def makespan(self) -> float:
        return float(np.max(self.finish) - np.min(self.workload.arrival))

    @property
    def utilisation(self) -> float:
        """Share of GPU-seconds between first arrival and last end that did work (overhead is no work)."""
        work = float(np.sum(self.workload.duration * self.workload.gpus))
        return work / (self.gpus * self.makespan)
