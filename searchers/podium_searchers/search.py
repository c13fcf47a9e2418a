"""The proposal for a trial: first the points of `search.initialTrials`, then those of `search.algorithm`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import optuna

from podium_core.schema.job import HyperParamJob, JobSpec
from podium_core.schema.search.conditions import active_values, dependency_order, is_active
from podium_core.schema.search.membership import typed
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.optuna_space import sample
from podium_searchers.registry import SEARCHERS


def propose(spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
    """Return the parameters of trial `number` (from 0), None if the search space is exhausted.

    `tried`: the results of the trials that exist, and before them those of `warm_start_results`.
    """
    initial = len(spec.search.initial_trials)
    if number < initial:
        return _initial_point(spec, number)
    return SEARCHERS[spec.search.algorithm].propose(spec, number - initial, tried)


def _initial_point(spec: JobSpec, number: int) -> Proposal:
    """Return the parameters of initial trial `number`: the values that its entry names, and the others at random.

    They depend on the spec and the number alone.
    """
    entry = spec.search.initial_trials[number]
    given = {one.name: typed(one, entry[one.name]) for one in spec.parameters if one.name in entry}
    if all(one.name in given or not is_active(one, given) for one in dependency_order(spec.parameters)):
        return active_values(spec, given)
    # a stream of its own: the trials after the initial ones are drawn from the seed and their number
    digest = hashlib.sha256(f"{spec.search.seed}/initial/{number}".encode()).digest()
    sampler = optuna.samplers.RandomSampler(seed=int.from_bytes(digest[:4], "big"))
    return sample(spec, sampler, given=given)


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
        TrialResult(
            number, one.parameters, step=one.step, value=one.value, completed=one.completed, values=tuple(one.values)
        )
        for number, one in enumerate(trials, start=-len(trials))
    ]
