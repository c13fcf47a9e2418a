"""Bayesian optimisation with a Gaussian process by Optuna's GPSampler (expected improvement). Needs PyTorch.

The values are replaced by the normal scores of their ranks (Salinas et al. 2020), because unfinished trials can only be
ordered behind the completed ones, and one diverged trial must not stretch the scale. A trial without a value counts as
running, so that proposals made together differ. An inactive parameter counts with the middle of its range.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from statistics import NormalDist

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState, create_trial

from podium_core.schema.job import JobSpec
from podium_core.schema.search.conditions import point_problem
from podium_core.schema.search.settings import startup_trials
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.optuna_space import distributions, sample, seed_of
from podium_searchers.random import RandomSearcher
from podium_searchers.results import best_first, by_number, values_shown, with_value
from podium_searchers.unit_cube import from_unit

MAX_TRIALS = 200  # half the best, half the latest: the time of a proposal grows with the third power


class GpSearcher:
    """Proposes points by a Gaussian process."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return a proposal of `random` until `startupTrials` trials have a value, then one of the process."""
        if values_shown(spec, tried) < startup_trials(spec):
            return RandomSearcher().propose(spec, number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            sampler = optuna.samplers.GPSampler(
                n_startup_trials=1, seed=seed_of(spec.search.seed, number), warn_independent_sampling=False
            )
            return sample(spec, sampler, _trials(spec, tried), minimize=True)

    def size(self, spec: JobSpec) -> int | None:
        """Return None: the number of trials is unlimited."""
        return None


def normal_scores(count: int) -> list[float]:
    """Return the expected order statistics of a normal sample, ascending (Blom 1958)."""
    return [NormalDist().inv_cdf((rank + 0.625) / (count + 0.25)) for rank in range(count)]


def _trials(spec: JobSpec, tried: Sequence[TrialResult]) -> list[FrozenTrial]:
    """Return Optuna's records of the trials that count; smaller values are better."""
    shown = with_value(spec, tried)
    ordered = best_first(spec, shown)
    kept = {one.number for one in [*shown[-MAX_TRIALS // 2 :], *ordered[: MAX_TRIALS // 2]]}
    ordered = [one for one in ordered if one.number in kept]
    scores = dict(zip((one.number for one in ordered), normal_scores(len(ordered)), strict=True))
    running = [
        one
        for one in by_number(tried)
        if one.value is None and one.step == 0 and not one.failed and point_problem(spec, one.parameters) is None
    ]
    return [_frozen(spec, one, scores.get(one.number)) for one in by_number([*ordered, *running])]


def _frozen(spec: JobSpec, one: TrialResult, score: float | None) -> FrozenTrial:
    middle = {parameter.name: from_unit(parameter, 0.5) for parameter in spec.parameters}
    return create_trial(
        state=TrialState.RUNNING if score is None else TrialState.COMPLETE,
        value=score,
        params={**middle, **one.parameters},
        distributions=dict(distributions(spec)),
    )
