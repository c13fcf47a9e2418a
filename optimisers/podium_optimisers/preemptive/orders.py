"""The orders that need no history: first come first served, shortest job first, least area first, shortest remaining
processing time. Called by `policies`.

SRPT minimises the mean completion time on one machine (Schrage, Operations Research 16(3), 1968); on several, and for
gangs, it is a heuristic. It reads the true duration, as SJF does: these are oracles unless a prediction stands in.
"""

from __future__ import annotations

from dataclasses import dataclass

from podium_optimisers.engine.cluster import Costs
from podium_optimisers.engine.priority import Static
from podium_optimisers.engine.simulation import JobState


class Arrival(Static):
    """FIFO: all keys are equal, ties go by arrival."""

    def key(self, job: JobState, now: float) -> float:
        return 0.0


class Shortest(Static):
    """SJF: by duration."""

    def key(self, job: JobState, now: float) -> float:
        return job.duration


class SmallestArea(Static):
    """By GPU-seconds: duration times width, which counts what a wide job keeps from the others."""

    def key(self, job: JobState, now: float) -> float:
        return job.duration * job.gpus


@dataclass(frozen=True, slots=True)
class Remaining(Static):
    """SRPT: by the seconds until the job would end if it had GPUs from now on, a restart included."""

    costs: Costs
    falling = True

    def key(self, job: JobState, now: float) -> float:
        if job.place is not None:
            return job.finish - now
        left = job.duration - job.done
        return left if job.last is None else left + self.costs.restart
