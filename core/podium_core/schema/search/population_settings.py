"""Settings of `search.algorithm: pbt`, and what a job with it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from podium_core.domain.snapshot import Scalar
from podium_core.schema.checkpointing import checkpoint_outlives_pod
from podium_core.schema.job import JobSpec
from podium_core.schema.rules import Refusal

PBT = "pbt"
POPULATION, INTERVAL, QUANTILE = "population", "interval", "quantile"
PERTURBATION, RESAMPLE, FIXED = "perturbation", "resampleProbability", "fixed"
NAMES = (POPULATION, INTERVAL, QUANTILE, PERTURBATION, RESAMPLE, FIXED)
MAX_POPULATION = 1_000
DEFAULT_POPULATION, DEFAULT_QUANTILE, DEFAULT_PERTURBATION, DEFAULT_RESAMPLE = 8, 0.25, 0.2, 0.25
MAX_QUANTILE = 0.5
_WHERE = "spec.search.settings"


@dataclass(frozen=True, slots=True)
class PopulationSettings:
    """Settings of population-based training.

    `fixed`: names of parameters that a child takes over unchanged.
    """

    population: int
    interval: float
    quantile: float
    perturbation: float
    resample_probability: float
    fixed: frozenset[str]


def population_settings(spec: JobSpec) -> PopulationSettings:
    """Return the settings of an accepted job, with the defaults."""
    given = spec.search.settings
    return PopulationSettings(
        int(given.get(POPULATION, DEFAULT_POPULATION)),
        float(given[INTERVAL]),
        float(given.get(QUANTILE, DEFAULT_QUANTILE)),
        float(given.get(PERTURBATION, DEFAULT_PERTURBATION)),
        float(given.get(RESAMPLE, DEFAULT_RESAMPLE)),
        frozenset(_names(given.get(FIXED, ""))),
    )


def population_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal for each setting that is not allowed and for each thing that the search lacks."""
    if spec.search.algorithm != PBT:
        return
    yield from _values(spec.search.settings, spec.trials.max)
    yield from _interval(spec)
    yield from _fixed(spec)
    if spec.trials.max_steps is None:
        message = "pbt compares trials at parts of their length: give trials.maxSteps"
        yield Refusal("MaxStepsMissing", "spec.trials.maxSteps", message)
    if not checkpoint_outlives_pod(spec):
        message = (
            "pbt continues a trial from the checkpoint of another one: give checkpoint.path, and checkpoint.volume "
            "with claimName or hostPath"
        )
        yield Refusal("CheckpointMissing", "spec.checkpoint", message)


def _values(given: Mapping[str, Scalar], most: int) -> Iterator[Refusal]:
    size, quantile = given.get(POPULATION, DEFAULT_POPULATION), given.get(QUANTILE, DEFAULT_QUANTILE)
    if isinstance(size, bool) or not isinstance(size, int) or not 2 <= size <= min(MAX_POPULATION, most):
        message = (
            f"population must be an integer from 2 to {min(MAX_POPULATION, most)} (got {size!r}); trials.max is {most} "
            "and counts children, too"
        )
        yield _invalid(POPULATION, message)
    elif not _is_number(quantile) or not 0.0 < float(quantile) <= MAX_QUANTILE:
        yield _invalid(QUANTILE, f"quantile must be a number above 0 and at most {MAX_QUANTILE} (got {quantile!r})")
    elif math.floor(size * float(quantile) + 1e-9) < 1:
        message = f"a quantile of {quantile} of {size} trials holds none: set population to at least "
        yield _invalid(POPULATION, f"{message}{math.ceil(1 / float(quantile) - 1e-9)}, or a larger quantile")
    factor = given.get(PERTURBATION, DEFAULT_PERTURBATION)
    if not _is_number(factor) or not 0.0 < float(factor) < 1.0:
        message = f"perturbation must be a number between 0 and 1 (got {factor!r}); 0.2 multiplies by 0.8 or 1.2"
        yield _invalid(PERTURBATION, message)
    probability = given.get(RESAMPLE, DEFAULT_RESAMPLE)
    if not _is_number(probability) or not 0.0 <= float(probability) <= 1.0:
        yield _invalid(RESAMPLE, f"resampleProbability must be a number from 0 to 1 (got {probability!r})")


def _interval(spec: JobSpec) -> Iterator[Refusal]:
    interval, steps = spec.search.settings.get(INTERVAL), spec.trials.max_steps
    if interval is None:
        message = "interval is missing: give the steps after which trials are compared, such as a tenth of maxSteps"
        yield Refusal("SettingMissing", f"{_WHERE}.{INTERVAL}", message)
    elif not _is_number(interval) or not 0.0 < float(interval) < math.inf:
        yield _invalid(INTERVAL, f"interval must be a number of steps above 0 (got {interval!r})")
    elif steps is not None and not steps * 1e-6 <= float(interval) < steps:
        message = f"interval must be less than trials.maxSteps ({steps:g}) and at least a millionth of it"
        yield _invalid(INTERVAL, f"{message} (got {interval:g})")


def _fixed(spec: JobSpec) -> Iterator[Refusal]:
    given, known = spec.search.settings.get(FIXED, ""), {parameter.name for parameter in spec.parameters}
    unknown = sorted(_names(given) - known)
    if not isinstance(given, str) or unknown:
        message = f"fixed must list parameters, separated by commas: {', '.join(sorted(known))} (got {given!r})"
        yield _invalid(FIXED, message)
    elif _names(given) == known:
        yield _invalid(FIXED, "fixed lists all parameters, so no child differs from its parent: leave one out")


def _invalid(name: str, message: str) -> Refusal:
    return Refusal("InvalidSetting", f"{_WHERE}.{name}", message)


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _names(given: Scalar) -> set[str]:
    return {name.strip() for name in str(given).split(",") if name.strip()}
