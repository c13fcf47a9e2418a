"""Adapter to Optuna's samplers: the search space as distributions, a generator for each trial, and a study."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial

from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import JobSpec, Objective, OneOfObjectives
from podium_core.schema.search.conditions import dependency_order, is_active
from podium_core.schema.search.membership import bounds, choices, is_range, last_step, nearest, point, step_of
from podium_core.schema.search.spec import Parameter, ParameterType
from podium_searchers.base import Proposal

optuna.logging.set_verbosity(optuna.logging.WARNING)


def distributions(spec: JobSpec) -> Mapping[str, BaseDistribution]:
    """Return the distributions by parameter, in the spec's order."""
    return {parameter.name: _distribution(parameter) for parameter in spec.parameters}


def seed_of(seed: int, number: int) -> int:
    """Return a seed of 32 well-spread bits: neighbouring numbers must not give similar generators."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


def sample(
    spec: JobSpec,
    sampler: BaseSampler,
    trials: Iterable[FrozenTrial] = (),
    *,
    given: Proposal = MappingProxyType({}),
    minimize: bool | None = None,
) -> Proposal:
    """Return the sampler's proposal for a study of these trials, in the spec's order. No study is kept.

    Only active parameters are sampled, each parent before its children. `given`: values that are not sampled;
    `minimize`: the direction of the trials' values, if it is not that of each objective.
    """
    objectives: Sequence[Objective | OneOfObjectives] = spec.objectives or [spec.objective]
    directions = [StudyDirection[one.direction.name] for one in objectives]
    if minimize is not None:
        directions = [StudyDirection.MINIMIZE if minimize else StudyDirection.MAXIMIZE] * len(objectives)
    study = optuna.create_study(
        storage=optuna.storages.InMemoryStorage(), sampler=sampler, directions=directions, study_name="search"
    )
    study.add_trials(trials)
    trial = study.ask()
    chosen: dict[str, Scalar] = {}
    for parameter in dependency_order(spec.parameters):
        if is_active(parameter, chosen):
            name = parameter.name
            chosen[name] = given[name] if name in given else _suggest(trial, parameter)
    return {parameter.name: chosen[parameter.name] for parameter in spec.parameters if parameter.name in chosen}


def _suggest(trial: Trial, parameter: Parameter) -> Scalar:
    match _distribution(parameter):
        case FloatDistribution(low=low, high=high, step=step, log=log):
            return nearest(parameter, trial.suggest_float(parameter.name, low, high, step=step, log=log))
        case IntDistribution(low=low, high=high, step=step, log=log):
            return nearest(parameter, trial.suggest_int(parameter.name, low, high, step=step, log=log))
        case _:
            listed = choices(parameter)
            chosen = trial.suggest_categorical(parameter.name, listed)
            return next(one for one in listed if type(one) is type(chosen) and one == chosen)


def _distribution(parameter: Parameter) -> BaseDistribution:
    """Return Optuna's distribution: up to the last point of a range with steps.

    On a log scale Optuna knows no steps: the value that it draws is rounded to one (`nearest`).
    """
    if not is_range(parameter):
        return CategoricalDistribution(choices(parameter))
    low, high = bounds(parameter)
    log, step = parameter.scale == "log", step_of(parameter)
    if step is not None:
        high = float(point(parameter, last_step(parameter)))
    if parameter.kind is ParameterType.INT:
        return IntDistribution(int(low), int(high), log=log, step=1 if log else int(step or 1))
    return FloatDistribution(low, high, log=log, step=None if log else step)
