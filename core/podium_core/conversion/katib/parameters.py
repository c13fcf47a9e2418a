"""Katib's `parameters`: the dimensions of the search space of the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podium_core.conversion.fields import Fields, Manifest, number_of, shown
from podium_core.conversion.ranges import Range, choices_of, parameter_of

# distribution -> whether the scale is logarithmic, and whether Katib's draws are denser in the middle
DISTRIBUTIONS: Mapping[str, tuple[bool, bool]] = {
    "uniform": (False, False),
    "unknown": (False, False),
    "logUniform": (True, False),
    "normal": (False, True),
    "logNormal": (True, True),
}


def katib_parameters(spec: Fields, fixed: Mapping[str, int | float], *, grid: bool) -> Iterator[Manifest]:
    """Yield the parameters of the job. `fixed`: those that have one value, which the template names."""
    seen: set[str] = set()
    for source in spec.objects("parameters", required=True):
        name = source.text("name", required=True)
        kind = source.choice("parameterType", "double", "int", "discrete", "categorical", required=True)
        space = source.fields("feasibleSpace", required=True)
        if name in fixed or name is None or kind is None:
            space.ignore("min", "max", "list", "step", "distribution")
            made = None
        elif kind in ("double", "int"):
            made = _range(name, space, whole=kind == "int", grid=grid)
        else:
            made = _choices(name, space, numbers=kind == "discrete")
        space.finish("Katib")
        source.finish("Katib")
        if name is not None:
            seen.add(name)
        if made is not None:
            yield made
    for name in fixed.keys() - seen:
        text = f"resource_name {shown(name)} is not one of the parameters: add it, or correct resource_name"
        spec.report.refuse(spec.at("parameters"), text)


def parameter_names(spec: Fields) -> Iterator[str]:
    """Yield the names of all parameters, also of those that were refused.

    A template that names a refused parameter is not a further mistake.
    """
    given = spec.raw("parameters")
    for one in given if isinstance(given, list) else ():
        name = one.get("name") if isinstance(one, Mapping) else None
        if isinstance(name, str):
            yield name


def _range(name: str, space: Fields, *, whole: bool, grid: bool) -> Manifest | None:
    low, high = space.number("min", required=True), space.number("max", required=True)
    step = space.number("step")
    distribution = space.text("distribution") or "uniform"
    space.unsupported("list", "a range has min and max: use parameterType discrete for a list")
    report, kind = space.report, "int" if whole else "double"
    if distribution not in DISTRIBUTIONS:
        text = f"must be {', '.join(DISTRIBUTIONS)}, not {shown(distribution)}"
        report.refuse(space.at("distribution"), text, "InvalidValue")
        return None
    if low is None or high is None:
        return None
    if step is not None and step <= 0:
        report.refuse(space.at("step"), f"must be greater than 0, not {shown(step)}", "InvalidValue")
        return None
    if whole and not all(isinstance(one, int) for one in (low, high, step) if one is not None):
        report.refuse(space.path, f"type {kind} needs whole numbers, not {shown([low, high, step])}", "InvalidValue")
        return None
    if grid and not whole and step is None and low != high:
        text = f"grid search needs a step for {name}, since a range of type double has no points: add step"
        report.refuse(space.at("step"), text, "GridWithoutPoints")
        return None
    log, bell = (False, False) if grid else DISTRIBUTIONS[distribution]  # a grid has no distribution
    if bell:
        text = f"{distribution} is not a distribution of Podium: values are drawn evenly on a"
        report.note(space.at("distribution"), f"{text} {'log' if log else 'linear'} scale, over the same range")
    return parameter_of(Range(name, space.path, low, high, whole, step, log), report)


def _choices(name: str, space: Fields, *, numbers: bool) -> Manifest | None:
    entries = space.entries("list", required=True)
    for other in ("min", "max", "step"):
        space.unsupported(other, "a list of values has no range: remove it")
    space.ignore("distribution")
    values = [one for _, one in entries]
    if numbers:
        found = [(path, one, number_of(one)) for path, one in entries]
        for path, one, number in found:
            if number is None:
                text = f"must be a number in a parameter of type discrete, not {shown(one)}"
                space.report.refuse(path, text, "InvalidValue")
        values = [number for _, _, number in found if number is not None]
    return choices_of(name, space.at("list"), values, space.report) if entries else None
