"""Conditional parameters (`when`): the order in which to choose them, which are active, and what is refused. Pure.

A parameter with a condition depends on one other parameter, its parent, whose values can be listed. Chains are allowed.
A trial has no value of an inactive parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import JobSpec
from podium_core.schema.rules import Refusal
from podium_core.schema.search.membership import same_value, value_problem
from podium_core.schema.search.spec import Parameter, ParameterType


def has_conditions(spec: JobSpec) -> bool:
    """Return whether any parameter has a condition."""
    return any(parameter.when is not None for parameter in spec.parameters)


def is_active(parameter: Parameter, chosen: Mapping[str, Scalar]) -> bool:
    """Return whether the parameter has a value, given the values of the parameters on which it depends."""
    when = parameter.when
    if when is None:
        return True
    return when.parameter in chosen and any(same_value(one, chosen[when.parameter]) for one in when.values)


def dependency_order(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Return the parameters with each parent before its children, else in the given order.

    Parameters in a cycle, or without their parent, are left out; validation refuses them.
    """
    ordered: list[Parameter] = []
    placed: set[str] = set()
    rest = list(parameters)
    while ready := [one for one in rest if one.when is None or one.when.parameter in placed]:
        ordered += ready
        placed.update(one.name for one in ready)
        rest = [one for one in rest if one not in ready]
    return ordered


def active_values(spec: JobSpec, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the values of the active parameters, in the spec's order."""
    chosen: dict[str, Scalar] = {}
    for parameter in dependency_order(spec.parameters):
        if parameter.name in values and is_active(parameter, chosen):
            chosen[parameter.name] = values[parameter.name]
    return {parameter.name: chosen[parameter.name] for parameter in spec.parameters if parameter.name in chosen}


def point_problem(spec: JobSpec, values: Mapping[str, Scalar]) -> str | None:
    """Return why these are not the parameters of a trial of this space, None if they are."""
    known = {parameter.name: parameter for parameter in spec.parameters}
    for name, value in values.items():
        if name not in known:
            return f"{name} is not a parameter"
        problem = value_problem(known[name], value)
        if problem is not None:
            return f"{name} {problem}"
    for parameter in spec.parameters:
        if is_active(parameter, values) != (parameter.name in values):
            return f"{parameter.name} is {'not active' if parameter.name in values else 'missing'}"
    return None


def condition_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal for each condition that cannot be decided."""
    by_name = {parameter.name: parameter for parameter in spec.parameters}
    resolved = {parameter.name for parameter in dependency_order(spec.parameters)}
    for number, parameter in enumerate(spec.parameters):
        when = parameter.when
        if when is None or when.parameter == parameter.name:  # the latter: ConditionOnItself
            continue
        where, parent = f"spec.parameters[{number}].when", by_name.get(when.parameter)
        if parent is None:
            message = (
                f"parameter {parameter.name} depends on {when.parameter}, which is not a parameter; "
                f"known parameters: {', '.join(by_name)}"
            )
            yield Refusal("UnknownParameter", f"{where}.parameter", message)
        elif parameter.name not in resolved and _in_cycle(parameter, by_name):
            message = (
                f"parameter {parameter.name} depends on {when.parameter}, which depends on {parameter.name} again: "
                "remove one of the conditions"
            )
            yield Refusal("ConditionCycle", f"{where}.parameter", message)
        elif parent.kind is ParameterType.FLOAT:
            message = (
                f"parameter {parameter.name} depends on {parent.name}, a range of type float, whose values cannot be "
                "listed: give it values, or type int"
            )
            yield Refusal("ConditionOnRange", f"{where}.parameter", message)
        else:
            yield from _values(parameter.name, parent, when.values, f"{where}.in")


def _values(name: str, parent: Parameter, values: Sequence[Scalar], where: str) -> Iterator[Refusal]:
    for index, value in enumerate(values):
        problem = value_problem(parent, value)
        if problem is not None:
            message = f"parameter {name} depends on the value {value!r} of {parent.name}, which {problem}: correct it"
            yield Refusal("ValueNotInSpace", f"{where}[{index}]", message)


def _in_cycle(parameter: Parameter, by_name: Mapping[str, Parameter]) -> bool:
    """Return whether the chain of parents leads back to the parameter."""
    name, seen = parameter.name, set[str]()
    while name not in seen:
        seen.add(name)
        found = by_name.get(name)
        if found is None or found.when is None:
            return False
        name = found.when.parameter
    return name == parameter.name
