"""The Gittins index: which job promises the most completions for each second that it gets, when only the distribution
of durations is known.

For a job of age a: G(a) = sup over b > a of P(S <= b | S > a) / E[min(S, b) - a | S > a]
(Gittins 1979; for queues: Aalto, Ayesta and Righter, Queueing Systems 63, 2009). It minimises the mean completion
time of an M/G/1 queue without known durations. With F the distribution and C(a) = integral of 1 - F from 0 to a, the
quotient is the slope (F(b) - F(a)) / (C(b) - C(a)). Ages are steps between quantiles of the history, as in Tiresias; a
job's index is looked at again when it comes to the next step. Called by the policy `Gittins`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from podium_optimisers.engine.simulation import JobState
from podium_optimisers.engine.workload import Floats

ALIKE = 1e-9  # of the later of two services


@dataclass(frozen=True, slots=True)
class GittinsTable:
    """`ages`: where the steps begin, shape (k,), GPU-seconds, the first 0; `index`: completions a second, shape (k,).
    The last step is beyond everything in the history: index 0.
    """

    ages: tuple[float, ...]
    index: tuple[float, ...]


def gittins_table(services: Floats, steps: int = 64) -> GittinsTable:
    """From the services (GPU-seconds) of jobs that have ended, shape (n,). O(n log n + steps^2).

    Errors: ValueError when the history is empty or holds a value that is no service.
    """
    if len(services) == 0:
        raise ValueError("InvalidHistory: services: there are none; give the GPU-seconds of at least one job.")
    wrong = np.flatnonzero(~(np.isfinite(services) & (services > 0.0)))
    if wrong.size:
        text = f"services[{wrong[0]}] is {services[wrong[0]]}; give finite GPU-seconds above 0."
        raise ValueError(f"InvalidHistory: {text}")
    if steps < 1:
        raise ValueError(f"InvalidSetting: steps is {steps}; give 1 or more.")
    levels = np.linspace(0.0, 1.0, steps + 1)
    ends = np.unique(np.quantile(services, levels[1:], method="higher"))
    # of ends that are alike the last: a step that the sums below do not feel has no index
    ends = ends[np.append(np.diff(ends) > ALIKE * ends[1:], True)]
    ages = np.concatenate([[0.0], ends])
    share = np.concatenate([[0.0], np.searchsorted(np.sort(services), ends, side="right") / len(services)])
    survival = 1.0 - 0.5 * (share[1:] + share[:-1])  # durations are spread evenly within a step
    spent = np.concatenate([[0.0], np.cumsum(survival * np.diff(ages))])
    index = [float(np.max((share[i + 1 :] - share[i]) / (spent[i + 1 :] - spent[i]))) for i in range(len(ages) - 1)]
    return GittinsTable(tuple(ages.tolist()), (*index, 0.0))


class GittinsOrder:
    """The order by the index of the step that the job's attained service is in."""

    falling = False

    def __init__(self, table: GittinsTable) -> None:
        self.table = table

    def key(self, job: JobState, now: float) -> float:
        return -self.table.index[job.level]

    def changes(self, job: JobState, now: float) -> float:
        if job.place is None or job.level + 1 == len(self.table.ages):
            return math.inf
        return job.ready + self.table.ages[job.level + 1] / job.gpus - job.done

    def alarmed(self, job: JobState, now: float) -> None:
        job.level += 1

    def finished(self, job: JobState, now: float) -> Iterable[JobState]:
        return ()  # the table is that of the history: nothing is learned
