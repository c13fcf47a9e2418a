"""What a learned policy sees: the waiting jobs in order of arrival, each as a row of numbers. Called by the environment
(training) and by the learned policy (running), so that both see the same.

Only ratios enter, no seconds: a policy trained on minutes works on days. Durations are read as SJF reads them.
"""

from __future__ import annotations

import math
from itertools import islice

import numpy as np

from podium_optimisers.engine.simulation import JobState, Simulation
from podium_optimisers.engine.workload import Floats

SLOTS = 32  # waiting jobs that are seen, those that came first
FEATURES = 12  # of a row
SPREAD = 5.0  # natural logarithms around the queue's mean that are told apart


class Backlog:
    """The waiting and the running jobs of one simulation; a decider that decides nothing by itself."""

    def __init__(self) -> None:
        self.waiting: dict[int, JobState] = {}  # by sequence, so in order of arrival
        self.running: dict[int, JobState] = {}

    def arrived(self, simulation: Simulation, job: JobState) -> None:
        self.waiting[job.sequence] = job

    def finished(self, simulation: Simulation, job: JobState) -> None:
        del self.running[job.sequence]

    def alarmed(self, simulation: Simulation, job: JobState) -> None:
        raise RuntimeError("a learned policy sets no alarm")

    def decide(self, simulation: Simulation) -> None:
        """Whoever drives the simulation decides."""

    def start(self, simulation: Simulation, job: JobState) -> None:
        simulation.start(job)
        self.running[job.sequence] = self.waiting.pop(job.sequence)

    def seen(self) -> list[JobState]:
        """The waiting jobs that have a slot."""
        return list(islice(self.waiting.values(), SLOTS))


def rows_of(simulation: Simulation, backlog: Backlog, jobs: list[JobState]) -> Floats:
    """Shape (len(jobs) + 1, FEATURES), every number in [0, 1]; the last row stands for "wait for the next event".

    Of a job: duration and area (duration x width) against the queue's mean, how long it waits against its duration,
    width against the cluster and against what is free, place in the queue. Of the cluster, the same in every row: share
    of free GPUs, waiting and running jobs, the soonest end, the widest waiting job.
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
    # 1 becomes 0.5; a ratio of exp(SPREAD) or more becomes 1
    rows[:-1, :3] = np.minimum(1.0, np.maximum(0.0, 0.5 + np.log(ratios) / (2.0 * SPREAD)))
    rows[:-1, 3] = widths / gpus
    rows[:-1, 4] = np.minimum(1.0, widths / max(free, 1))
    rows[:-1, 5] = np.arange(count) / SLOTS
    rows[-1, 6] = 1.0
    soonest = min((job.finish for job in backlog.running.values()), default=math.inf) - now
    rows[:, 7] = free / gpus
    rows[:, 8] = min(1.0, len(backlog.waiting) / SLOTS)
    rows[:, 9] = len(backlog.running) / gpus
    rows[:, 10] = soonest / (soonest + mean) if soonest < math.inf else 1.0
    rows[:, 11] = float(widths.max()) / gpus
    return rows
