"""TPE by Optuna's TPESampler (Bergstra et al. 2011): draw where good trials are denser than the others.

Each proposal builds a new study from the results, so nothing is kept. A completed trial counts with its best value. A
trial that runs or was ended early counts like Optuna's pruned trials: behind the completed ones, the longest trained
first, then by value. A trial without a value counts as a bad one (a constant liar), so that proposals made together
differ.

With several objectives it is MOTPE (Ozaki et al. 2022): the good trials are those of the first fronts. Only completed
trials count with their values, since Optuna cannot order pruned ones; the others count as bad ones.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence

from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from podium_core.schema.job import JobSpec
from podium_core.schema.search.conditions import has_conditions, point_problem
from podium_core.schema.search.settings import startup_trials
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.optuna_space import distributions, sample, seed_of
from podium_searchers.random import RandomSearcher
from podium_searchers.results import by_number, has_values, values_shown

MAX_TRIALS = 1000  # the latest trials that count: a proposal takes about 0.1 ms for each
_STEP_RESOLUTION = 1000  # Optuna's steps are integers: a step is counted in thousandths


class TpeSearcher:
    """Proposes points by TPE."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return a proposal of `random` until `startupTrials` trials have a value, afterwards one of TPE."""
        if values_shown(spec, tried) < startup_trials(spec):
            return RandomSearcher().propose(spec, number)
        space = distributions(spec)
        sampler = _sampler(seed_of(spec.search.seed, number), conditional=has_conditions(spec))
        latest = by_number(tried)[-MAX_TRIALS:]
        return sample(
            spec, sampler, [frozen for one in latest if (frozen := _frozen_trial(one, spec, space)) is not None]
        )

    def size(self, spec: JobSpec) -> int | None:
        """Return None: the number of trials is unlimited."""
        return None


def _sampler(seed: int, *, conditional: bool) -> TPESampler:
    """Return Optuna's sampler.

    With conditions, parameters that are active together have a density of their own.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        # by name: Optuna 5 changed the defaults of the first three
        return TPESampler(
            n_startup_trials=1,
            multivariate=True,
            constant_liar=True,
            group=conditional,
            seed=seed,
        )


def _frozen_trial(one: TrialResult, spec: JobSpec, space: Mapping[str, BaseDistribution]) -> FrozenTrial | None:
    """Return Optuna's record of a trial; None if it failed or was created by hand with a point outside the space."""
    parameters = {name: one.parameters[name] for name in space if name in one.parameters}
    if one.failed or point_problem(spec, parameters) is not None:
        return None
    if spec.objectives is not None:
        return _of_several(one, spec, parameters, space)
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
            distributions={name: space[name] for name in parameters},
            intermediate_values=shown,
        )
    except ValueError:
        return None


def _of_several(
    one: TrialResult, spec: JobSpec, parameters: Proposal, space: Mapping[str, BaseDistribution]
) -> FrozenTrial | None:
    """Return Optuna's record of a trial with several objectives."""
    completed = has_values(spec, one)
    try:
        return create_trial(
            state=TrialState.COMPLETE if completed else TrialState.RUNNING,
            values=one.values if completed else None,
            params=dict(parameters),
            distributions={name: space[name] for name in parameters},
        )
    except ValueError:
        return None
