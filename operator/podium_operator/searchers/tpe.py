"""TPE by Optuna's TPESampler (Bergstra et al. 2011): the next point is drawn where good trials lie denser than others.

A study is made anew for each proposal from what the trials have shown, so nothing is kept. A trial that is complete
counts by its best value; one that is under way or was ended early counts as Optuna's pruned trials do: behind those,
the longer trained first, then by value. One that has shown nothing yet is taken for a bad one (a constant liar), so
that those that are made together differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from podium_core.schema.job import JobSpec
from podium_core.schema.search_settings import startup_trials
from podium_operator.searchers.base import Proposal, Tried
from podium_operator.searchers.optuna_space import ask, distributions, seed_of
from podium_operator.searchers.random import RandomSearcher

MOST = 1000  # trials that are asked, the latest: a proposal takes about 0.1 ms for each
_PARTS = 1000  # of a step: Optuna's are whole numbers


class TpeSearcher:
    def propose(self, spec: JobSpec, number: int, tried: Sequence[Tried] = ()) -> Proposal | None:
        """As `random` does until `startupTrials` trials have shown a value."""
        if sum(one.value is not None for one in tried) < startup_trials(spec):
            return RandomSearcher().propose(spec, number)
        space = distributions(spec)
        # by name: Optuna 5 changed the defaults of both
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=1, multivariate=True, constant_liar=True, seed=seed_of(spec.search.seed, number)
        )
        return ask(spec, sampler, [told for one in tried[-MOST:] if (told := _told(one, space)) is not None])

    def size(self, spec: JobSpec) -> int | None:
        return None


def _told(one: Tried, space: Mapping[str, BaseDistribution]) -> FrozenTrial | None:
    """None for a trial that failed, and for one that somebody made by hand with a point outside the space."""
    parameters = {name: one.parameters[name] for name in space if name in one.parameters}
    if one.failed or len(parameters) < len(space):
        return None
    if one.value is None:
        state, shown = (TrialState.PRUNED, {0: math.nan}) if one.step else (TrialState.RUNNING, {})
    else:
        state, shown = TrialState.PRUNED, {round(_PARTS * one.step): one.value}
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
