"""Random search by Optuna's RandomSampler: trial k is drawn from a generator seeded by (seed, k) alone."""

from __future__ import annotations

import hashlib

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from podium.schema.job import JobSpec, Parameter, ParameterType
from podium_operator.searchers.base import Proposal

optuna.logging.set_verbosity(optuna.logging.WARNING)


class RandomSearcher:
    def propose(self, spec: JobSpec, number: int) -> Proposal | None:
        sampler = optuna.samplers.RandomSampler(seed=_seed(spec.search.seed, number))
        study = optuna.create_study(storage=optuna.storages.InMemoryStorage(), sampler=sampler)
        distributions = {parameter.name: _distribution(parameter) for parameter in spec.parameters}
        trial = study.ask(fixed_distributions=distributions)
        return {parameter.name: trial.params[parameter.name] for parameter in spec.parameters}

    def size(self, spec: JobSpec) -> int | None:
        return None


def _seed(seed: int, number: int) -> int:
    """Well-spread 32 bits: neighbouring numbers must not give neighbouring generators."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


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
