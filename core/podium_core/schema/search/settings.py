"""`search.settings`: the settings of each search algorithm, and which algorithms learn from earlier trials."""

from __future__ import annotations

from collections.abc import Iterator

from podium_core.schema.job import JobSpec
from podium_core.schema.rules import Refusal
from podium_core.schema.search import population_settings
from podium_core.schema.search.membership import is_range
from podium_core.schema.search.spec import Parameter

STARTUP, MAX_STARTUP, DEFAULT_STARTUP = "startupTrials", 10_000, 10
KNOWN = {
    "auto": (STARTUP,),
    "cmaes": (STARTUP,),
    "gp": (STARTUP,),
    "grid": (),
    "pbt": population_settings.NAMES,
    "qmc": (),
    "random": (),
    "tpe": (STARTUP,),
}
LEARNING = ("auto", "cmaes", "gp", "tpe")


def learns(spec: JobSpec) -> bool:
    """Return whether proposals depend on the results of earlier trials.

    Then a trial is better created late.
    """
    return spec.search.algorithm in LEARNING


def startup_trials(spec: JobSpec) -> int:
    """Return how many trials must have reported a value before the algorithm chooses by values."""
    return int(spec.search.settings.get(STARTUP, DEFAULT_STARTUP))


def setting_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal for each setting that the algorithm does not have or whose value is not allowed."""
    algorithm, settings = spec.search.algorithm, spec.search.settings
    known = KNOWN[algorithm]
    for name in sorted(settings.keys() - set(known)):
        plural = "s" if len(known) > 1 else ""
        knows = f"has only the setting{plural} {', '.join(known)}" if known else "has no settings"
        message = f"algorithm {algorithm} {knows}: remove {name}"
        yield Refusal("UnknownSetting", f"spec.search.settings.{name}", message)
    value = settings.get(STARTUP, DEFAULT_STARTUP)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if STARTUP in known and not (whole and 1 <= int(value) <= MAX_STARTUP):
        message = f"startupTrials must be an integer from 1 to {MAX_STARTUP} (got {value!r})"
        yield Refusal("InvalidSetting", f"spec.search.settings.{STARTUP}", message)
    yield from population_settings.population_refusals(spec)
    if algorithm == "cmaes" and not cmaes_parameters(spec):
        message = "cmaes chooses ranges (min, max) on which no other parameter depends, and there is none: use tpe"
        yield Refusal("NoRange", "spec.search.algorithm", message)


def cmaes_parameters(spec: JobSpec) -> list[Parameter]:
    """Return the parameters that cmaes itself chooses: ranges on which no other parameter depends."""
    parents = {parameter.when.parameter for parameter in spec.parameters if parameter.when is not None}
    return [parameter for parameter in spec.parameters if is_range(parameter) and parameter.name not in parents]
