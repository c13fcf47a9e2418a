"""Checks of the search space as a whole, and of `search.initialTrials` against it.

They refuse colliding names, values of the wrong type, grids that are too large, and initial trials out of the space.

`validation` calls it. `env_name` is also called where the variables are set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import JobSpec
from podium_core.schema.rules import Refusal
from podium_core.schema.search.conditions import is_active
from podium_core.schema.search.grid import MAX_COUNTED_POINTS, ParameterGrid
from podium_core.schema.search.membership import typed, value_problem
from podium_core.schema.search.spec import Parameter, ParameterType

__all__ = ["MAX_COUNTED_POINTS", "env_name", "grid_points", "grid_refusals", "initial_refusals", "space_refusals"]

ENV_PREFIX = "PODIUM_PARAM_"
_INITIAL_TRIALS = "spec.search.initialTrials"
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
            yield Refusal("ParameterMissing", f"{_INITIAL_TRIALS}[{number}]", message)


def initial_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal for each value that the search space does not have, and for each entry listed twice."""
    known = {parameter.name: parameter for parameter in spec.parameters}
    seen: dict[str, int] = {}
    for number, given in enumerate(spec.search.initial_trials):
        where = f"{_INITIAL_TRIALS}[{number}]"
        problems = list(_entry_refusals(known, given, where))
        yield from problems
        if problems:
            continue
        text = json.dumps({name: typed(known[name], given[name]) for name in sorted(given)})
        if text in seen:
            message = f"this entry is the same as initialTrials[{seen[text]}]: remove one"
            yield Refusal("DuplicateTrial", where, message)
        seen.setdefault(text, number)


def _entry_refusals(known: Mapping[str, Parameter], given: Mapping[str, Scalar], where: str) -> Iterator[Refusal]:
    for name, value in given.items():
        parameter = known.get(name)
        if parameter is None:
            message = f"{name} is not a parameter of this search; known parameters: {', '.join(known)}"
            yield Refusal("UnknownParameter", f"{where}.{name}", message)
            continue
        problem = value_problem(parameter, value)
        if problem is not None:
            message = f"{name} {problem} (got {json.dumps(value)}): correct it, or widen the search space"
            yield Refusal("ValueNotInSpace", f"{where}.{name}", message)
        when = parameter.when
        if when is None or is_active(parameter, given):
            continue
        wanted = " or ".join(json.dumps(one) for one in when.values[:8])
        if when.parameter in given:
            message = (
                f"{name} applies only if {when.parameter} is {wanted}, but this entry sets it to "
                f"{json.dumps(given[when.parameter])}: remove {name}, or change {when.parameter}"
            )
        else:
            message = f"{name} applies only if {when.parameter} is {wanted}: set {when.parameter} in this entry, too"
        yield Refusal("ParameterInactive", f"{where}.{name}", message)


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
