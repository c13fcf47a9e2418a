"""The Gittins index: a priority for jobs of which only the distribution of durations is known.

The index of a job of age a is the highest rate of completions that it promises for each second of service:

  G(a) = sup over b > a of P(S <= b | S > a) / E[min(S, b) - a | S > a]

It minimises the mean completion time of an M/G/1 queue with unknown durations (Gittins 1979; for queues: Aalto, Ayesta
and Righter, Queueing Systems 63, 2009). With F the distribution and C(a) the integral of 1 - F from 0 to a, the
quotient is the slope (F(b) - F(a)) / (C(b) - C(a)). Ages are steps between quantiles of the history, as in Tiresias. A
job's index is updated when the job reaches the next step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.engine.simulation import JobState

RELATIVE_TOLERANCE = 1e-9  # relative: services closer than this are equal


@dataclass(frozen=True, slots=True)
class GittinsTable:
    """The Gittins index by age. `ages`: the start of each step, shape (k,), in GPU-seconds, the first 0.

    `index`: completions per second, shape (k,). The last step lies beyond all services in the history and has index 0.
    """

    ages: tuple[float, ...]
    index: tuple[float, ...]


def gittins_table(services: Floats, steps: int = 64) -> GittinsTable:
    """Compute the index from the services (GPU-seconds) of completed jobs, shape (n,).

    O(n log n + steps^2). Raises ValueError if the history is empty or a service is not positive and finite.
    """
    if len(services) == 0:
        raise ValueError("InvalidHistory: services is empty; give the GPU-seconds of at least one job.")
    wrong = np.flatnonzero(~(np.isfinite(services) & (services > 0.0)))
    if wrong.size:
        text = f"services[{wrong[0]}] is {services[wrong[0]]}; give finite GPU-seconds above 0."
        raise ValueError(f"InvalidHistory: {text}")
    if steps < 1:
        raise ValueError(f"InvalidSetting: steps must be at least 1 (got {steps}).")
    levels = np.linspace(0.0, 1.0, steps + 1)
    ends = np.unique(np.quantile(services, levels[1:], method="higher"))
    # keep the last of nearly equal ends: a step too short for the sums below has no index
    ends = ends[np.append(np.diff(ends) > RELATIVE_TOLERANCE * ends[1:], True)]
    ages = np.concatenate([[0.0], ends])
    share = np.concatenate([[0.0], np.searchsorted(np.sort(services), ends, side="right") / len(services)])
    survival = 1.0 - 0.5 * (share[1:] + share[:-1])  # durations are taken as uniform within a step
    spent = np.concatenate([[0.0], np.cumsum(survival * np.diff(ages))])
    index = [float(np.max((share[i + 1 :] - share[i]) / (spent[i + 1 :] - spent[i]))) for i in range(len(ages) - 1)]
    return GittinsTable(tuple(ages.tolist()), (*index, 0.0))


class GittinsOrdering:
    """The order by the index of the step that contains the job's attained service."""

    decreasing = False

    def __init__(self, table: GittinsTable) -> None:
        self.table = table

    def key(self, job: JobState, now: float) -> float:
        """Return minus the Gittins index of the job's step."""
        return -self.table.index[job.level]

    def next_change(self, job: JobState, now: float) -> float:
        """Return when a running job reaches the next step."""
        if job.placement is None or job.level + 1 == len(self.table.ages):
            return math.inf
        return job.ready + self.table.ages[job.level + 1] / job.gpus - job.done

    def on_timer(self, job: JobState, now: float) -> None:
        """Move the job to the next step."""
        job.level += 1

    def on_completion(self, job: JobState, now: float) -> Iterable[JobState]:
        """Return no jobs: the table does not change during a simulation."""
        return ()
