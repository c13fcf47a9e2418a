"""The observation of a learned policy: the waiting jobs in order of arrival, each as a feature row.

The environment (training) and the learned policy (running) share this code, so both see the same. All features are
ratios without units: a policy trained on minutes works on days. Durations are the true ones, as for SJF.
"""

from __future__ import annotations

import math
from itertools import islice

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.engine.simulation import JobState, Simulation

MAX_VISIBLE_JOBS = 32  # the oldest waiting jobs
FEATURES = 12
LOG_RANGE = 5.0  # range of the logarithm of a ratio that maps to a feature in [0, 1]


class Backlog:
    """The waiting and the running jobs of one simulation. It is a scheduler that makes no decisions."""

    def __init__(self) -> None:
        self.waiting: dict[int, JobState] = {}  # by sequence number, so in order of arrival
        self.running: dict[int, JobState] = {}

    def on_arrival(self, simulation: Simulation, job: JobState) -> None:
        """Record a waiting job."""
        self.waiting[job.sequence] = job

    def on_completion(self, simulation: Simulation, job: JobState) -> None:
        """Remove a completed job."""
        del self.running[job.sequence]

    def on_timer(self, simulation: Simulation, job: JobState) -> None:
        """Raise RuntimeError: no timers are set."""
        raise RuntimeError("a learned policy received a timer, but it sets none")

    def decide(self, simulation: Simulation) -> None:
        """Do nothing: the environment or a subclass decides."""

    def start(self, simulation: Simulation, job: JobState) -> None:
        """Start a waiting job."""
        simulation.start(job)
        self.running[job.sequence] = self.waiting.pop(job.sequence)

    def visible_jobs(self) -> list[JobState]:
        """Return the waiting jobs that the policy can see, the oldest first."""
        return list(islice(self.waiting.values(), MAX_VISIBLE_JOBS))


def feature_rows(simulation: Simulation, backlog: Backlog, jobs: list[JobState]) -> Floats:
    """Return features of shape (len(jobs) + 1, FEATURES), each in [0, 1].

    The last row stands for waiting for the next event. Features of a job:

    - duration and area (duration x width) relative to the queue's mean
    - waiting time relative to its duration
    - width relative to the cluster and to the free GPUs
    - position in the queue

    Features of the cluster, equal in every row: share of free GPUs, waiting and running jobs, the next completion, the
    widest waiting job.
    """
    gpus, free, now = simulation.cluster.gpus, simulation.pool.free, simulation.now
    count = len(jobs)
    rows = np.zeros((count + 1, FEATURES))
    lengths = np.array([job.duration for job in jobs])
    widths = np.array([job.gpus for job in jobs], dtype=np.float64)
    areas = lengths * widths
    mean = float(lengths.sum()) / count
    ratios = np.empty((count, 3))
    ratios[:, 0] = lengths / mean
    ratios[:, 1] = areas * (count / float(areas.sum()))
    ratios[:, 2] = (np.array([now - job.waiting_since for job in jobs]) + 1e-3 * mean) / lengths
    # a ratio of 1 becomes 0.5; a ratio of exp(LOG_RANGE) or more becomes 1
    rows[:-1, :3] = np.minimum(1.0, np.maximum(0.0, 0.5 + np.log(ratios) / (2.0 * LOG_RANGE)))
    rows[:-1, 3] = widths / gpus
    rows[:-1, 4] = np.minimum(1.0, widths / max(free, 1))
    rows[:-1, 5] = np.arange(count) / MAX_VISIBLE_JOBS
    rows[-1, 6] = 1.0
    soonest = min((job.finish for job in backlog.running.values()), default=math.inf) - now
    rows[:, 7] = free / gpus
    rows[:, 8] = min(1.0, len(backlog.waiting) / MAX_VISIBLE_JOBS)
    rows[:, 9] = len(backlog.running) / gpus
    rows[:, 10] = soonest / (soonest + mean) if soonest < math.inf else 1.0
    rows[:, 11] = float(widths.max()) / gpus
    return rows
