"""Population-based training (Jaderberg et al. 2017): random founders, and children with a better trial's parameters.

The planner decides which trial has a child (`podium_core.planning.exploitation`). This module perturbs the parameters:

- With `resampleProbability`, a parameter is drawn at random.
- Otherwise a number is multiplied by 1 - `perturbation` or 1 + `perturbation` and brought into its range, by at least
  one step where it has steps. A listed value changes to the one before or after it.
- A parameter of `fixed` is copied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import optuna

from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import JobSpec
from podium_core.schema.search.membership import (
    bounds,
    choices,
    is_range,
    last_step,
    nearest,
    point,
    same_value,
    step_of,
)
from podium_core.schema.search.population_settings import PopulationSettings, population_settings
from podium_core.schema.search.spec import Parameter
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.optuna_space import sample
from podium_searchers.random import RandomSearcher


class PbtSearcher:
    """Proposes the founders of a population."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return a random point that depends only on the seed and the number."""
        return RandomSearcher().propose(spec, number)

    def size(self, spec: JobSpec) -> int | None:
        """Return None: the number of trials is unlimited."""
        return None


def propose_child(spec: JobSpec, number: int, parent: Proposal) -> Proposal:
    """Return the parameters of a child.

    They depend on the spec, the number and the parent's parameters alone.
    A parameter that becomes active with the child's values is drawn at random.
    """
    settings = population_settings(spec)
    digest = hashlib.sha256(f"{spec.search.seed}/child/{number}".encode()).digest()
    draws = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    given: dict[str, Scalar] = {}
    for parameter in spec.parameters:
        resampled, up = draws.random() < settings.resample_probability, draws.random() < 0.5
        if parameter.name not in parent:
            continue
        value = parent[parameter.name]
        if parameter.name in settings.fixed:
            given[parameter.name] = _stored(parameter, value)
        elif not resampled:
            given[parameter.name] = _perturbed(parameter, value, settings, up=up)
    sampler = optuna.samplers.RandomSampler(seed=int.from_bytes(digest[8:12], "big"))
    return sample(spec, sampler, given=given)


def _perturbed(parameter: Parameter, value: Scalar, settings: PopulationSettings, *, up: bool) -> Scalar:
    if not is_range(parameter):
        listed = choices(parameter)
        index = next(i for i, one in enumerate(listed) if same_value(one, value))
        return listed[min(max(index + (1 if up else -1), 0), len(listed) - 1)]
    number = float(value)
    moved = nearest(parameter, number * (1.0 + (settings.perturbation if up else -settings.perturbation)))
    step = step_of(parameter)
    if step is None or not same_value(moved, nearest(parameter, value)):
        return moved
    index = round((number - bounds(parameter)[0]) / step) + (1 if up else -1)
    return point(parameter, min(max(index, 0), last_step(parameter)))


def _stored(parameter: Parameter, value: Scalar) -> Scalar:
    """Return the value with the type of the search space: the API server stores 1.0 as 1."""
    if is_range(parameter):
        return nearest(parameter, value)
    return next(one for one in choices(parameter) if same_value(one, value))
