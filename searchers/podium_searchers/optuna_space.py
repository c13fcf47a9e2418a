"""Adapter to Optuna's samplers: the search space as distributions, a generator for each trial, and a study."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from podium_core.schema.job import JobSpec, Parameter, ParameterType
from podium_searchers.base import Proposal

optuna.logging.set_verbosity(optuna.logging.WARNING)


def distributions(spec: JobSpec) -> Mapping[str, BaseDistribution]:
    """Return the distributions by parameter, in the spec's order."""
    return {parameter.name: _distribution(parameter) for parameter in spec.parameters}


def seed_of(seed: int, number: int) -> int:
    """Return a seed of 32 well-spread bits: neighbouring numbers must not give similar generators."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


def sample(spec: JobSpec, sampler: BaseSampler, trials: Iterable[FrozenTrial] = ()) -> Proposal:
    """Return the sampler's proposal for a study of these trials, in the spec's order. No study is kept."""
    storage, direction = optuna.storages.InMemoryStorage(), StudyDirection[spec.objective.direction.name]
    study = optuna.create_study(storage=storage, sampler=sampler, direction=direction)
    study.add_trials(trials)
    trial = study.ask(fixed_distributions=dict(distributions(spec)))
    return {parameter.name: trial.params[parameter.name] for parameter in spec.parameters}


def _distribution(parameter: Parameter) -> BaseDistribution:
    if parameter.values is not None:
        return CategoricalDistribution(list(parameter.values))
    if parameter.kind is ParameterType.BOOLEAN:
        return CategoricalDistribution([False, True])
    if parameter.min is None or parameter.max is None:
        raise ValueError(f"parameter {parameter.name}: a range needs min and max")
    log = parameter.scale == "log"
    if parameter.kind is ParameterType.INT:
        step = int(parameter.step) if parameter.step is not None else 1
        return IntDistribution(int(parameter.min), int(parameter.max), log=log, step=step)
    return FloatDistribution(parameter.min, parameter.max, log=log, step=parameter.step)
