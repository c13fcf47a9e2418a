"""Which values a parameter can have: membership, the nearest point of a range with steps, and the stored types.

Acceptance checks the values that users list with it, and searchers bring what they draw onto the steps. Pure.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal

from podium_core.domain.snapshot import Scalar
from podium_core.schema.search.spec import Parameter, ParameterType

_TOLERANCE = 1e-6  # of a step: a value read from YAML and a computed point differ by rounding
MAX_STEPS = 1e15  # above it, a float does not hold every integer; the quotient of a refused range may be infinite
MAX_SHOWN = 8  # values that a message lists


def same_value(one: Scalar, other: Scalar) -> bool:
    """Return whether two values are the same choice: 1 and 1.0 are, 1 and true are not, nor 1 and "1"."""
    return _sort(one) == _sort(other) and one == other


def _sort(value: Scalar) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def is_range(parameter: Parameter) -> bool:
    """Return whether the parameter is a range of numbers, not a list of choices."""
    return parameter.values is None and parameter.kind is not ParameterType.BOOLEAN


def bounds(parameter: Parameter) -> tuple[float, float]:
    """Return min and max of a range. Raises ValueError if one is missing, which validation refuses."""
    if parameter.min is None or parameter.max is None:
        raise ValueError(f"parameter {parameter.name}: a range needs min and max")
    return parameter.min, parameter.max


def step_of(parameter: Parameter) -> float | None:
    """Return the distance between the points of a range, None if every number in it is a point."""
    return parameter.step or (1.0 if parameter.kind is ParameterType.INT else None)


def last_step(parameter: Parameter) -> int:
    """Return the number of whole steps from min to the largest point of a range with steps."""
    (low, high), step = bounds(parameter), step_of(parameter)
    if step is None:
        raise ValueError(f"parameter {parameter.name}: the range has no steps")
    # 0.1 * 3 > 0.3 in binary: the end of the range counts although rounding misses it.
    steps = (high - low) / step * (1 + 1e-12) + 1e-9
    return math.floor(min(max(steps, 0.0), MAX_STEPS))


def point(parameter: Parameter, index: int) -> Scalar:
    """Return point `index` of a range with steps: computed in decimal, so that 0 + 3 * 0.1 is 0.3."""
    low, step = bounds(parameter)[0], step_of(parameter)
    exact = Decimal(repr(low)) + index * Decimal(repr(step))
    return int(exact) if parameter.kind is ParameterType.INT else float(exact)


def nearest(parameter: Parameter, value: Scalar) -> Scalar:
    """Return the nearest value of a range, with the parameter's type; a choice is returned as it is."""
    if not is_range(parameter) or isinstance(value, str):
        return value
    low, high = bounds(parameter)
    number = min(max(float(value), low), high)
    step = step_of(parameter)
    if step is None:
        return number
    return point(parameter, min(round((number - low) / step), last_step(parameter)))


def choices(parameter: Parameter) -> list[Scalar]:
    """Return the values of a categorical or boolean parameter."""
    return [False, True] if parameter.values is None else list(parameter.values)


def typed(parameter: Parameter, value: Scalar) -> Scalar:
    """Return a value of the space with its type, as a searcher proposes it: 1 as 1.0 for a float."""
    if is_range(parameter):
        return nearest(parameter, value)
    return next(one for one in choices(parameter) if same_value(one, value))


def value_problem(parameter: Parameter, value: Scalar) -> str | None:
    """Return what a value of the parameter must be, None if this is one."""
    if not is_range(parameter):
        listed = choices(parameter)
        if any(same_value(one, value) for one in listed):
            return None
        more = ", ..." if len(listed) > MAX_SHOWN else ""
        return f"must be one of {', '.join(json.dumps(one) for one in listed[:MAX_SHOWN])}{more}"
    low, high = bounds(parameter)
    step, whole = step_of(parameter), parameter.kind is ParameterType.INT
    if step is not None:  # the last point, computed in decimal, may be a rounding error larger than max
        high = max(high, float(point(parameter, last_step(parameter))))
    kind = "an integer" if whole else "a number"
    if isinstance(value, bool | str) or not low <= value <= high or (whole and not float(value).is_integer()):
        return f"must be {kind} from {low:g} to {high:g}"
    if step is not None:
        steps = (value - low) / step
        if abs(steps - round(steps)) > _TOLERANCE * max(1.0, abs(steps) * _TOLERANCE):
            return f"must be {low:g} plus a whole number of steps of {step:g}"
    return None
