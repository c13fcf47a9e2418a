"""Tenure: since when the trials of one job have held a GPU, each from the end of the one before it.

Time slices between jobs count from it. They would start again with each trial otherwise, and a job of short trials
would keep its GPUs from a trial that needs two of them at the same time. A trial that took the GPU from another one of
its job, which waits there, has a time slice of its own: else it could be preempted before it has done a step.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from podium_core.domain.keys import JobKey, TrialKey


class Tenure(NamedTuple):
    """The trial that holds a GPU and its job; times are in seconds of the caller's clock.

    `since`: when the trial got the GPU. `before`: the trial of the same job that held it until then, and when that
    one's tenure began; None if there was none.
    """

    job: JobKey
    trial: TrialKey
    since: float
    before: tuple[TrialKey, float] | None = None

    def start(self, present: Container[TrialKey]) -> float:
        """Return when the tenure began. `present`: trials with a slot on the GPU, in any state."""
        return self.since if self.before is None or self.before[0] in present else self.before[1]


def continued(known: Tenure | None, job: JobKey, trial: TrialKey, since: float, present: Container[TrialKey]) -> Tenure:
    """Return the tenure of a GPU that a trial of `job` has held since a time. Pure.

    `known`: the tenure until then, also if the GPU had no holder for a while; None if no trial held it yet. `present`:
    trials with a slot on the GPU, in any state.
    """
    if known is None or known.job != job:
        return Tenure(job, trial, since)
    if known.trial == trial:
        return known._replace(since=min(known.since, since))
    return Tenure(job, trial, since, (known.trial, known.start(present)))
