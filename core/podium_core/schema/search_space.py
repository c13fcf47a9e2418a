"""Checks of the search space as a whole: colliding names, values of the wrong type, and grids that are too large.

`validation` calls it. `env_name` is also called where the variables are set.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from podium_core.schema.job import JobSpec, Parameter, ParameterType, Scalar
from podium_core.schema.rules import Refusal

ENV_PREFIX = "PODIUM_PARAM_"
MAX_GRID_POINTS = 10_000  # the largest trials.max
MAX_COUNTED_POINTS = 10**12  # A larger count says nothing more, and a quotient of floats may be infinite.


def env_name(parameter: str) -> str:
    """Return the environment variable of a parameter: `learning-rate` becomes PODIUM_PARAM_LEARNING_RATE."""
    return ENV_PREFIX + re.sub(r"[^A-Za-z0-9]", "_", parameter).upper()


def space_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal for each problem of the search space."""
    yield from _names(spec.parameters)
    for number, parameter in enumerate(spec.parameters):
        yield from _values(parameter, f"spec.parameters[{number}].values")
    points = grid_points(spec) if spec.search.algorithm == "grid" else None
    if points is not None and points > MAX_GRID_POINTS:
        more = " or more" if points == MAX_COUNTED_POINTS else ""
        message = (
            f"the grid has {points} points{more}, more than {MAX_GRID_POINTS}: use larger steps or fewer values, "
            "or algorithm random"
        )
        yield Refusal("GridTooLarge", "spec.search.algorithm", message)


def grid_points(spec: JobSpec) -> int | None:
    """Return the number of points of a grid search, at most MAX_COUNTED_POINTS.

    None if a range has no points.
    """
    sizes = [_points(parameter) for parameter in spec.parameters]
    return None if None in sizes else min(math.prod(size for size in sizes if size is not None), MAX_COUNTED_POINTS)


def _points(parameter: Parameter) -> int | None:
    if parameter.values is not None:
        return len(parameter.values)
    if parameter.type is ParameterType.BOOLEAN:
        return 2
    step = parameter.step or (1.0 if parameter.type is ParameterType.INT else None)
    if parameter.min is None or parameter.max is None or step is None or parameter.scale == "log":
        return None
    # 0.1 * 3 > 0.3 in binary: the end of the range counts although rounding misses it.
    steps = (parameter.max - parameter.min) / step * (1 + 1e-12) + 1e-9
    return math.floor(min(max(steps, 0.0), MAX_COUNTED_POINTS)) + 1


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
