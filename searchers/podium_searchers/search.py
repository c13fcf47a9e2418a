"""The proposal for a trial: first the points of `search.initialTrials`, then those of `search.algorithm`."""

from __future__ import annotations

from collections.abc import Sequence

from podium_core.schema.job import HyperParamJob, JobSpec
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.initial import initial_point
from podium_searchers.registry import SEARCHERS


def propose(spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
    """Return the parameters of trial `number` (from 0), None if the search space is exhausted.

    `tried`: the results of the trials that exist, and before them those of `warm_start_results`.
    """
    initial = len(spec.search.initial_trials)
    if number < initial:
        return initial_point(spec, number)
    return SEARCHERS[spec.search.algorithm].propose(spec, number - initial, tried)


def size(spec: JobSpec) -> int | None:
    """Return the number of different trials, None if it is unlimited.

    Each initial trial of a grid is on the grid.
    """
    return SEARCHERS[spec.search.algorithm].size(spec)


def warm_start_results(job: HyperParamJob) -> list[TrialResult]:
    """Return the stored results of earlier searches; negative numbers put them before the own trials."""
    if job.status.warm_start is None:
        return []
    trials = job.status.warm_start.trials
    return [
        TrialResult(number, one.parameters, step=one.step, value=one.value, completed=one.completed)
        for number, one in enumerate(trials, start=-len(trials))
    ]
