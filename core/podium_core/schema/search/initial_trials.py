"""Checks of `search.initialTrials` against the search space. Pure; `validation` calls it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import JobSpec
from podium_core.schema.rules import Refusal
from podium_core.schema.search.conditions import is_active
from podium_core.schema.search.membership import typed, value_problem
from podium_core.schema.search.spec import Parameter

_FIELD = "spec.search.initialTrials"


def initial_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal for each value that the search space does not have, and for each entry listed twice."""
    known = {parameter.name: parameter for parameter in spec.parameters}
    seen: dict[str, int] = {}
    for number, given in enumerate(spec.search.initial_trials):
        where = f"{_FIELD}[{number}]"
        problems = list(_entry(known, given, where))
        yield from problems
        if problems:
            continue
        text = json.dumps({name: typed(known[name], given[name]) for name in sorted(given)})
        if text in seen:
            message = f"this entry is the same as initialTrials[{seen[text]}]: remove one"
            yield Refusal("DuplicateTrial", where, message)
        seen.setdefault(text, number)


def _entry(known: Mapping[str, Parameter], given: Mapping[str, Scalar], where: str) -> Iterator[Refusal]:
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
