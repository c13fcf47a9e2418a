"""Importance of the parameters of a search, by Optuna's PED-ANOVA.

It compares where the best tenth of the trials lies with where all trials lie, so it needs neither a model nor
scikit-learn. Watanabe et al. 2023, "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary
Subspaces".
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, create_trial

from podium_core.curves.non_finite import diverged
from podium_core.schema.job import JobSpec
from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.background.tasks import Importances, UnknownError
from podium_searchers.optuna_space import distributions

FEWEST = 20  # ended trials: below, the best tenth is a single trial


def importances(spec: JobSpec, trials: Sequence[HyperParamTrial]) -> Importances:
    """Return the importances by these ended trials.

    Raises UnknownError if there are too few of them, or several objectives.
    """
    if spec.objectives is not None:
        raise UnknownError("A search with several objectives has no single value to explain.")
    space = {name: one for name, one in distributions(spec).items() if not one.single()}
    if len(space) < 2:
        raise UnknownError("The search has fewer than two parameters with several values.")
    records = [record for trial in trials if (record := _record(trial, space)) is not None]
    if len(records) < FEWEST:
        text = f"Not enough finished trials: {len(records)} have ended with a value, and {FEWEST} are needed."
        raise UnknownError(text)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    direction = StudyDirection[spec.objective.direction.name]
    study = optuna.create_study(direction=direction)
    study.add_trials(records)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), params=list(space))
    total = sum(found.values())
    if not total > 0.0:
        raise UnknownError("No parameter makes a difference among the best trials.")
    shares = sorted(((name, share / total) for name, share in found.items()), key=lambda one: (-one[1], one[0]))
    return Importances(tuple(shares), len(records))


def _record(trial: HyperParamTrial, space: Mapping[str, BaseDistribution]) -> FrozenTrial | None:
    """Return Optuna's record of a trial; None without a value, or with a point outside the space."""
    best, given = trial.status.best, trial.spec.parameters
    if best is None or diverged(best.value) or not space.keys() <= given.keys():
        return None
    try:
        params = {name: given[name] for name in space}
        return create_trial(value=best.value, params=params, distributions=dict(space))
    except ValueError:
        return None
