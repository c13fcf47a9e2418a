"""Points of the unit cube as values of parameters, and back: what `qmc` and `cmaes` compute with.

A discrete parameter divides the unit interval into equal parts, one for each value; on a log scale, the parts of a
range with steps are as wide as the points are far apart there. Pure.
"""

from __future__ import annotations

import math

from podium_core.domain.snapshot import Scalar
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
from podium_core.schema.search.spec import Parameter


def from_unit(parameter: Parameter, share: float) -> Scalar:
    """Return the value at `share` of the parameter's range, from 0 to 1."""
    share = min(max(share, 0.0), 1.0)
    if not is_range(parameter):
        listed = choices(parameter)
        return listed[min(int(share * len(listed)), len(listed) - 1)]
    low, high = _log_bounds(parameter) if parameter.scale == "log" else bounds(parameter)
    if parameter.scale == "log":
        return nearest(parameter, math.exp(low + share * (high - low)))
    if step_of(parameter) is None:
        return nearest(parameter, low + share * (high - low))
    last = last_step(parameter)
    return point(parameter, min(int(share * (last + 1)), last))


def to_unit(parameter: Parameter, value: Scalar) -> float:
    """Return the share of the range at which `value` is: the middle of its part if it is discrete."""
    if not is_range(parameter):
        listed = choices(parameter)
        index = next((index for index, one in enumerate(listed) if same_value(one, value)), 0)
        return (index + 0.5) / len(listed)
    number = float(value)
    if parameter.scale == "log":
        low, high = _log_bounds(parameter)
        return min(max((math.log(number) - low) / (high - low), 0.0), 1.0)
    low, high = bounds(parameter)
    step = step_of(parameter)
    if step is None:
        return min(max((number - low) / (high - low), 0.0), 1.0)
    return (round((number - low) / step) + 0.5) / (last_step(parameter) + 1)


def _log_bounds(parameter: Parameter) -> tuple[float, float]:
    """Return the logarithms of the range's ends; half a step wider where there are steps."""
    low, high = bounds(parameter)
    step = step_of(parameter)
    if step is None:
        return math.log(low), math.log(high)
    return math.log(low - step / 2), math.log(low + step * (last_step(parameter) + 0.5))
