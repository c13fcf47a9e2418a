"""What all of Optuna's samplers are asked with: the space as its distributions, and a generator for each trial."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from podium.schema.job import JobSpec, Parameter, ParameterType

optuna.logging.set_verbosity(optuna.logging.WARNING)


def distributions(spec: JobSpec) -> Mapping[str, BaseDistribution]:
    """By parameter, in the spec's order."""
    return {parameter.name: _distribution(parameter) for parameter in spec.parameters}


def seed_of(seed: int, number: int) -> int:
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
