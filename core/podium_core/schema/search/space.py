"""Checks of the search space as a whole: colliding names, values of the wrong type, and grids that are too large.

`validation` calls it. `env_name` is also called where the variables are set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import JobSpec
from podium_core.schema.rules import Refusal
from podium_core.schema.search.conditions import is_active
from podium_core.schema.search.grid import MAX_COUNTED_POINTS, ParameterGrid
from podium_core.schema.search.spec import Parameter, ParameterType

__all__ = ["MAX_COUNTED_POINTS", "env_name", "grid_points", "grid_refusals", "space_refusals"]

ENV_PREFIX = "PODIUM_PARAM_"
MAX_GRID_POINTS = 10_000  # the largest trials.max


def env_name(parameter: str) -> str:
    """Return the environment variable of a parameter: `learning-rate` becomes PODIUM_PARAM_LEARNING_RATE."""
    return ENV_PREFIX + re.sub(r"[^A-Za-z0-9]", "_", parameter).upper()


def space_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal for each problem of the search space."""
    yield from _names(spec.parameters)
    for number, parameter in enumerate(spec.parameters):
        yield from _values(parameter, f"spec.parameters[{number}].values")


def grid_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal if algorithm grid cannot try every point, or cannot find a point of `initialTrials`."""
    if spec.search.algorithm != "grid":
        return
    points = grid_points(spec)
    if points is not None and points > MAX_GRID_POINTS:
        more = " or more" if points == MAX_COUNTED_POINTS else ""
        message = (
            f"the grid has {points} points{more}, more than {MAX_GRID_POINTS}: use larger steps or fewer values, "
            "or algorithm random"
        )
        yield Refusal("GridTooLarge", "spec.search.algorithm", message)
    for number, given in enumerate(spec.search.initial_trials):
        missing = [one.name for one in spec.parameters if is_active(one, given) and one.name not in given]
        if missing:
            message = f"with algorithm grid an entry is a point of the grid: give {', '.join(missing)}, too"
            yield Refusal("ParameterMissing", f"spec.search.initialTrials[{number}]", message)


def grid_points(spec: JobSpec) -> int | None:
    """Return the number of points of a grid search, at most MAX_COUNTED_POINTS.

    None if a range has no points.
    """
    return ParameterGrid(spec).size


def _names(parameters: list[Parameter]) -> Iterator[Refusal]:
    seen: dict[str, str] = {}
    for number, parameter in enumerate(parameters):
        variable = env_name(parameter.name)
        other = seen.get(variable)
        seen.setdefault(variable, parameter.name)
        if other is None:
            continue
        where = f"spec.parameters[{number}].name"
        if other == parameter.name:
            yield Refusal("DuplicateParameter", where, f"there are two parameters {other}: remove one or rename it")
        else:
            message = f"{parameter.name} and {other} would both be {variable} in the trial: rename one"
            yield Refusal("ParameterNamesCollide", where, message)


def _values(parameter: Parameter, where: str) -> Iterator[Refusal]:
    seen: set[str] = set()
    for value in parameter.values or ():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if text in seen:  # 1 and "1" are the same on a command line
            yield Refusal("DuplicateValue", where, f"parameter {parameter.name} lists {text} twice: remove one")
        seen.add(text)
        if not _fits(value, parameter.type):
            message = f"parameter {parameter.name} is of type {parameter.type}, but {value!r} is not: change one"
            yield Refusal("ValueTypeMismatch", where, message)


def _fits(value: Scalar, kind: ParameterType | None) -> bool:
    if kind not in (ParameterType.INT, ParameterType.FLOAT):
        return True
    if isinstance(value, bool | str):
        return False
    return kind is ParameterType.FLOAT or float(value).is_integer()
