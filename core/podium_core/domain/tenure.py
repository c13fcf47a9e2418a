"""Tenure: since when the trials of one job have held a GPU, each from the end of the one before it.

Time slices between jobs count from it. They would start again with each trial otherwise, and a job of short trials
would keep its GPUs from a trial that needs two of them at the same time. A trial that took the GPU from another one of
its job has a time slice of its own: else it could be preempted before it has done a step.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from podium_core.domain.keys import JobKey, TrialKey

LONGEST_GAP = 10.0  # seconds without a holder, between the end of a trial and the start of the next one
MOST_BEFORE = 32  # trials that are remembered


class Tenure(NamedTuple):
    """The trial that holds a GPU, and those of the same job that held it until then.

    - `since`: when the trial got the GPU, in seconds
    - `before`: the others, and when each got the GPU, the first one first
    - `idle_since`: when the GPU was first seen without a holder; None while it has one
    """

    job: JobKey
    trial: TrialKey
    since: float
    before: tuple[tuple[TrialKey, float], ...] = ()
    idle_since: float | None = None

    def start(self, unfinished: Container[TrialKey]) -> float:
        """Return when the tenure began: with the first trial after which each one has ended. Pure."""
        start = self.since
        for trial, since in reversed(self.before):
            if trial in unfinished:
                break
            start = since
        return start


def held(known: Tenure | None, job: JobKey, trial: TrialKey, since: float) -> Tenure:
    """Return the tenure of a GPU that a trial of `job` has held since a time; `known` until then. Pure."""
    if known is None or known.job != job:
        return Tenure(job, trial, since)
    if known.idle_since is not None and since - known.idle_since > LONGEST_GAP:
        return Tenure(job, trial, since)
    if known.trial == trial:
        return Tenure(job, trial, since) if since > known.since else known._replace(since=since, idle_since=None)
    return Tenure(job, trial, since, (*known.before, (known.trial, known.since))[-MOST_BEFORE:])


def idle(known: Tenure | None, now: float) -> Tenure | None:
    """Return the tenure of a GPU that has no holder now. Pure."""
    return known if known is None or known.idle_since is not None else known._replace(idle_since=now)
