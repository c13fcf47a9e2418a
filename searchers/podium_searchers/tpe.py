"""TPE by Optuna's TPESampler (Bergstra et al. 2011): draw where good trials are denser than the others.

Each proposal builds a new study from the results, so nothing is kept. A completed trial counts with its best value. A
trial that runs or was ended early counts like Optuna's pruned trials: behind the completed ones, the longest trained
first, then by value. A trial without a value counts as a bad one (a constant liar), so that proposals made together
differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from podium_core.schema.job import JobSpec
from podium_core.schema.search_settings import startup_trials
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.optuna_space import distributions, sample, seed_of
from podium_searchers.random import RandomSearcher

MAX_TRIALS = 1000  # the latest trials that count: a proposal takes about 0.1 ms for each
_STEP_RESOLUTION = 1000  # Optuna's steps are integers: a step is counted in thousandths


class TpeSearcher:
    """Proposes points by TPE."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return a proposal of `random` until `startupTrials` trials have a value, afterwards one of TPE."""
        if sum(one.value is not None for one in tried) < startup_trials(spec):
            return RandomSearcher().propose(spec, number)
        space = distributions(spec)
        # by name: Optuna 5 changed the defaults of both
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=1, multivariate=True, constant_liar=True, seed=seed_of(spec.search.seed, number)
        )
        return sample(
            spec, sampler, [frozen for one in tried[-MAX_TRIALS:] if (frozen := _frozen_trial(one, space)) is not None]
        )

    def size(self, spec: JobSpec) -> int | None:
        """Return None: the number of trials is unlimited."""
        return None


def _frozen_trial(one: TrialResult, space: Mapping[str, BaseDistribution]) -> FrozenTrial | None:
    """Return Optuna's record of a trial; None if it failed or was created by hand with a point outside the space."""
    parameters = {name: one.parameters[name] for name in space if name in one.parameters}
    if one.failed or len(parameters) < len(space):
        return None
    if one.value is None:
        state, shown = (TrialState.PRUNED, {0: math.nan}) if one.step else (TrialState.RUNNING, {})
    else:
        state, shown = TrialState.PRUNED, {round(_STEP_RESOLUTION * one.step): one.value}
    completed = one.completed and one.value is not None
    try:
        return create_trial(
            state=TrialState.COMPLETE if completed else state,
            value=one.value if completed else None,
            params=parameters,
            distributions=dict(space),
            intermediate_values=shown,
        )
    except ValueError:
        return None
