"""Least attained service (LAS) with discrete queues, as in Tiresias (Gu et al., NSDI 2019).

LAS needs no durations. A job starts in the first queue and moves to the next queue each time its attained service (GPUs
x seconds of work) reaches a threshold. Jobs in earlier queues preempt jobs in later ones. Within a queue the order is
FIFO without preemption. A job that has waited `promote` times as long as it has worked returns to the first queue, so
that long jobs do not starve (the paper's "PromoteKnob").
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from podium_optimisers.engine.simulation import JobState


class AttainedServiceOrdering:
    """The order by queue. `thresholds`: ascending, in GPU-seconds. `promote`: inf disables promotion.

    Raises ValueError that names the setting.
    """

    decreasing = False

    def __init__(self, thresholds: tuple[float, ...], promote: float = math.inf) -> None:
        rising = all(before < after for before, after in pairwise(thresholds))
        if not thresholds or not rising or not thresholds[0] > 0.0 or not math.isfinite(thresholds[-1]):
            raise ValueError(f"InvalidSetting: thresholds are {thresholds}; give ascending GPU-seconds above 0.")
        if not promote > 0.0:
            raise ValueError(f"InvalidSetting: promote must be above 0 (got {promote}); inf disables promotion.")
        self.thresholds = thresholds
        self.promote = promote
        self._since: dict[int, float] = {}  # work at a job's last promotion: its service counts from there

    def key(self, job: JobState, now: float) -> float:
        """Return the number of the job's queue."""
        return float(job.level)

    def next_change(self, job: JobState, now: float) -> float:
        """Return when the job is promoted (waiting) or reaches its threshold (running)."""
        if job.placement is None:
            waited_enough = job.waiting_since + self.promote * self._served(job)
            return waited_enough if job.level > 0 else math.inf
        if job.level == len(self.thresholds):
            return math.inf
        return job.ready + self.thresholds[job.level] / job.gpus - self._served(job)

    def on_timer(self, job: JobState, now: float) -> None:
        """Promote a waiting job to the first queue; move a running job to the next queue."""
        if job.placement is not None:
            job.level += 1
            return
        job.level = 0
        self._since[job.sequence] = job.done

    def on_completion(self, job: JobState, now: float) -> Iterable[JobState]:
        """Forget a completed job; no keys change."""
        self._since.pop(job.sequence, None)
        return ()

    def _served(self, job: JobState) -> float:
        """Return the seconds of work since the last promotion, up to the last preemption."""
        return job.done - self._since.get(job.sequence, 0.0)
