"""Least attained service with discrete queues, as in Tiresias (Gu et al., NSDI 2019): no durations needed.

A job begins in the first queue and sinks one queue each time its attained service (GPUs x seconds of work) reaches a
threshold. Lower queues go first and take GPUs from higher ones; within a queue it is first come first served and nobody
takes from anybody. A job that has waited `promote` times as long as it has worked goes back to the first queue, so
that long jobs do not starve (their "PromoteKnob"). Called by `policies`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from podium_optimisers.engine.simulation import JobState


class AttainedQueues:
    """`thresholds`: GPU-seconds, rising; `promote`: inf = never. Errors: ValueError names the setting."""

    falling = False

    def __init__(self, thresholds: tuple[float, ...], promote: float = math.inf) -> None:
        rising = all(before < after for before, after in pairwise(thresholds))
        if not thresholds or not rising or not thresholds[0] > 0.0 or not math.isfinite(thresholds[-1]):
            raise ValueError(f"InvalidSetting: thresholds are {thresholds}; give rising GPU-seconds above 0.")
        if not promote > 0.0:
            raise ValueError(f"InvalidSetting: promote is {promote}; give a number above 0, inf for never.")
        self.thresholds = thresholds
        self.promote = promote
        self._since: dict[int, float] = {}  # seconds of work that a promoted job had then: its service counts from 0

    def key(self, job: JobState, now: float) -> float:
        return float(job.level)

    def changes(self, job: JobState, now: float) -> float:
        if job.place is None:
            waited_enough = job.waiting_since + self.promote * self._served(job)
            return waited_enough if job.level > 0 else math.inf
        if job.level == len(self.thresholds):
            return math.inf
        return job.ready + self.thresholds[job.level] / job.gpus - self._served(job)

    def alarmed(self, job: JobState, now: float) -> None:
        if job.place is not None:
            job.level += 1
            return
        job.level = 0
        self._since[job.sequence] = job.done

    def finished(self, job: JobState, now: float) -> Iterable[JobState]:
        self._since.pop(job.sequence, None)
        return ()

    def _served(self, job: JobState) -> float:
        """Seconds of work that count, up to the last preemption."""
        return job.done - self._since.get(job.sequence, 0.0)
