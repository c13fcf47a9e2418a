"""Grid search: every combination once, the last parameter changes fastest. Trial k is number k in mixed radix."""

from __future__ import annotations

from collections.abc import Sequence

from podium_core.schema.job import JobSpec, Parameter, ParameterType, Scalar
from podium_core.schema.search_space import grid_points
from podium_searchers.base import Proposal, TrialResult


class GridSearcher:
    """Proposes the points of the grid in order."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return point `number` of the grid, or None after the last one."""
        choices = [(parameter.name, _points(parameter)) for parameter in spec.parameters]
        chosen: dict[str, Scalar] = {}
        rest = number
        for name, points in reversed(choices):
            rest, index = divmod(rest, len(points))
            chosen[name] = points[index]
        if rest:
            return None
        return {name: chosen[name] for name, _ in choices}

    def size(self, spec: JobSpec) -> int | None:
        """Return the number of points."""
        return grid_points(spec)


def _points(parameter: Parameter) -> list[Scalar]:
    """Return the values of one parameter. Validation refused a float range without step (GridNeedsStep)."""
    if parameter.values is not None:
        return list(parameter.values)
    if parameter.kind is ParameterType.BOOLEAN:
        return [False, True]
    if parameter.min is None or parameter.max is None:
        raise ValueError(f"parameter {parameter.name}: a range needs min and max")
    if parameter.kind is ParameterType.INT:
        return list(range(int(parameter.min), int(parameter.max) + 1, int(parameter.step or 1)))
    if parameter.step is None:
        raise ValueError(f"parameter {parameter.name}: a grid over a float range needs step")
    # computed from the index, not by adding up: adding 0.1 thirty times does not give 3.0
    count = int((parameter.max - parameter.min) / parameter.step + 1e-9) + 1
    return [parameter.min + index * parameter.step for index in range(count)]
