"""The grid of a search space: every combination of values once, numbered so that the last parameter changes fastest.

A combination holds the active parameters only, so a conditional parameter multiplies only the values of its parent with
which it is active. Each parameter is a node of a forest: its number of combinations is the sum over its values of the
product of its active children's. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import JobSpec
from podium_core.schema.search.conditions import dependency_order, is_active
from podium_core.schema.search.membership import (
    choices,
    is_range,
    last_step,
    nearest,
    point,
    same_value,
    value_problem,
)
from podium_core.schema.search.spec import Parameter, ParameterType

MAX_COUNTED_POINTS = 10**12  # A larger count says nothing more, and a quotient of floats may be infinite.


class ParameterGrid:
    """Combinations of the values of a search space."""

    def __init__(self, spec: JobSpec) -> None:
        ordered = dependency_order(spec.parameters)
        self._names = [parameter.name for parameter in spec.parameters]
        self._roots = [one for one in spec.parameters if one.when is None]
        self._children: dict[str, list[Parameter]] = {one.name: [] for one in ordered}
        for one in spec.parameters:
            if one.when is not None and one.name in self._children:
                self._children[one.when.parameter].append(one)
        self._sizes: dict[str, int | None] = {}
        for one in reversed(ordered):  # children first
            self._sizes[one.name] = self._count(one)
        self.size = self._product(self._roots)

    def __getitem__(self, index: int) -> Mapping[str, Scalar] | None:
        """Return combination `index` in the spec's order, None after the last one."""
        if self.size is None or not 0 <= index < self.size:
            return None
        chosen: dict[str, Scalar] = {}
        self._choose(self._roots, index, chosen)
        return {name: chosen[name] for name in self._names if name in chosen}

    def index(self, values: Mapping[str, Scalar]) -> int:
        """Return the number of a combination. Raises ValueError if a value is not on the grid."""
        return self._rank(self._roots, values)

    def _choose(self, siblings: Sequence[Parameter], index: int, chosen: dict[str, Scalar]) -> None:
        for parameter in reversed(siblings):
            index, rest = divmod(index, self._sizes[parameter.name] or 1)
            if not self._children[parameter.name]:
                chosen[parameter.name] = _value(parameter, rest)
                continue
            for value, active, size in self._blocks(parameter):
                if rest < size:
                    chosen[parameter.name] = value
                    self._choose(active, rest, chosen)
                    break
                rest -= size

    def _rank(self, siblings: Sequence[Parameter], values: Mapping[str, Scalar]) -> int:
        index = 0
        for parameter in siblings:
            index *= self._sizes[parameter.name] or 1
            given, before = nearest(parameter, values[parameter.name]), 0
            for value, active, size in self._blocks(parameter):
                if same_value(value, given):
                    index += before + self._rank(active, values)
                    break
                before += size
            else:
                raise ValueError(f"parameter {parameter.name}: {given!r} is not on the grid")
        return index

    def _blocks(self, parameter: Parameter) -> Iterator[tuple[Scalar, Sequence[Parameter], int]]:
        """Yield each value with the children that it makes active and the number of their combinations."""
        for index in range(_points(parameter) or 0):
            value = _value(parameter, index)
            active = _active(self._children[parameter.name], parameter, value)
            yield value, active, self._product(active) or 1

    def _count(self, parameter: Parameter) -> int | None:
        own, children = _points(parameter), self._children[parameter.name]
        if own is None or not children:
            return own
        # only the listed values differ: a range of integers may have more values than can be counted one by one
        listed: list[Scalar] = []
        for value in (value for child in children if child.when is not None for value in child.when.values):
            if value_problem(parameter, value) is None and not any(same_value(value, one) for one in listed):
                listed.append(value)
        sizes = [self._product(_active(children, parameter, value)) for value in listed]
        if None in sizes:
            return None
        return min(own - len(listed) + sum(size for size in sizes if size is not None), MAX_COUNTED_POINTS)

    def _product(self, parameters: Iterable[Parameter]) -> int | None:
        sizes = [self._sizes[parameter.name] for parameter in parameters]
        return None if None in sizes else min(math.prod(one for one in sizes if one is not None), MAX_COUNTED_POINTS)


def _active(children: Iterable[Parameter], parent: Parameter, value: Scalar) -> list[Parameter]:
    return [child for child in children if is_active(child, {parent.name: value})]


def _value(parameter: Parameter, index: int) -> Scalar:
    return point(parameter, index) if is_range(parameter) else choices(parameter)[index]


def _points(parameter: Parameter) -> int | None:
    """Return the number of values, None if the parameter is a range without steps."""
    if not is_range(parameter):
        return len(choices(parameter))
    step = parameter.step or (1.0 if parameter.kind is ParameterType.INT and parameter.scale == "linear" else None)
    if step is None or parameter.min is None or parameter.max is None:
        return None
    if (parameter.max - parameter.min) / step >= MAX_COUNTED_POINTS:
        return MAX_COUNTED_POINTS
    return last_step(parameter) + 1
