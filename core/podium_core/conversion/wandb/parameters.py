"""The `parameters` of a W&B sweep: the dimensions of the search space, and the constants of the command line."""

from __future__ import annotations

import math
from typing import NamedTuple

from podium_core.conversion.fields import Fields, Manifest, number_of, shown
from podium_core.conversion.given import scalar
from podium_core.conversion.ranges import Range, choices_of, parameter_of

Constant = str | bool | int | float
_SIGMAS = 3.0  # 99.7 % of a normal distribution
_LARGEST_EXPONENT = 300.0  # e to this power is still far from the largest float


class Distribution(NamedTuple):
    """A distribution of W&B as a range.

    `log`: the scale. `exponents`: the ends are exponents of e. `stepped`: q is the distance of the points. `bell`: it
    is given by mean and deviation. `inverse`: exponents of 1/x.
    """

    log: bool = False
    exponents: bool = False
    stepped: bool = False
    bell: bool = False
    inverse: bool = False


DISTRIBUTIONS = {
    "uniform": Distribution(),
    "int_uniform": Distribution(),
    "q_uniform": Distribution(stepped=True),
    "log_uniform": Distribution(log=True, exponents=True),
    "log_uniform_values": Distribution(log=True),
    "inv_log_uniform": Distribution(log=True, exponents=True, inverse=True),
    "inv_log_uniform_values": Distribution(log=True),
    "q_log_uniform": Distribution(log=True, exponents=True, stepped=True),
    "q_log_uniform_values": Distribution(log=True, stepped=True),
    "normal": Distribution(bell=True),
    "q_normal": Distribution(bell=True, stepped=True),
    "log_normal": Distribution(log=True, bell=True),
    "q_log_normal": Distribution(log=True, bell=True, stepped=True),
}
_BETA = ("beta", "q_beta")
_CHOICES = ("categorical", "categorical_w_probabilities", "constant")


class Space(NamedTuple):
    """The dimensions of a search, and the parameters with one value, in the order of the sweep."""

    parameters: list[Manifest]
    constants: dict[str, Constant]


def wandb_space(source: Fields, names: list[str]) -> Space:
    """Return the search space of the parameters `names` of a sweep."""
    space = Space([], {})
    for name in names:
        one = source.fields(name)
        if one.raw("parameters") is not None:
            text = f"{name} holds parameters of its own: give each one a name at the top, such as {name}_lr"
            one.report.refuse(one.at("parameters"), f"{text}, since Podium's parameters are flat")
            continue
        made = _parameter(name, one, space.constants)
        one.finish("W&B")
        if made is not None:
            space.parameters.append(made)
    return space


def _parameter(name: str, source: Fields, constants: dict[str, Constant]) -> Manifest | None:
    """Return the dimension of one parameter; a constant is added to `constants`."""
    value, values = source.raw("value"), source.raw("values")
    kind = source.text("distribution")
    if value is not None:
        if scalar(value):
            constants[name] = value
        else:
            text = f"{shown(value)} is not a string, a number or a boolean: let the script set it"
            source.report.refuse(source.at("value"), text, "InvalidValue")
        return None
    if values is not None:
        if source.raw("probabilities") is not None:
            text = "Podium draws each value equally often: repeat none, and leave out what is unlikely"
            source.report.note(source.at("probabilities"), text)
        entries = source.entries("values")
        if entries:
            return choices_of(name, source.at("values"), [one for _, one in entries], source.report)
        if isinstance(values, list):
            source.report.refuse(source.at("values"), "is empty: list the values", "InvalidValue")
        return None
    return _range(name, source, kind)


def _range(name: str, source: Fields, kind: str | None) -> Manifest | None:
    report = source.report
    if kind in _BETA:
        source.ignore("a", "b")
        step = source.number("q") if kind == "q_beta" else None
        report.note(source.at("distribution"), f"{kind} is drawn evenly from 0 to 1: Podium has no such distribution")
        return parameter_of(Range(name, source.path, 0, 1, step=step), report)
    rules = Distribution() if kind is None else DISTRIBUTIONS.get(kind)
    if rules is None:
        known = ", ".join((*DISTRIBUTIONS, *_BETA))
        why = "needs values" if kind in _CHOICES else f"is not known: use one of {known}"
        report.refuse(source.at("distribution"), f"{shown(kind)} {why}", "InvalidValue")
        source.ignore("min", "max", "q", "mu", "sigma")
        return None
    ends = _normal(source, str(kind), rules) if rules.bell else _ends(source, rules)
    q = source.number("q") if rules.stepped else None
    if ends is None:
        return None
    step = (1 if q is None else q) if rules.stepped else None
    if step is not None and step <= 0:
        report.refuse(source.at("q"), f"must be greater than 0, not {shown(step)}", "InvalidValue")
        return None
    low, high = ends
    whole = isinstance(low, int) and isinstance(high, int) and isinstance(step, int | None)
    whole = whole and (rules.stepped or kind in (None, "int_uniform"))
    if kind == "int_uniform" and not whole:
        report.refuse(source.path, f"int_uniform needs whole numbers, not {shown([low, high])}", "InvalidValue")
        return None
    return parameter_of(Range(name, source.path, low, high, whole, step, rules.log), report)


def _ends(source: Fields, rules: Distribution) -> tuple[int | float, int | float] | None:
    """Return both ends of a range; exponents are computed."""
    low, high = source.number("min", required=True), source.number("max", required=True)
    if low is None or high is None:
        return None
    if not rules.exponents:
        return low, high
    if max(abs(low), abs(high)) > _LARGEST_EXPONENT:
        text = f"e to the power of {low:g} or {high:g} is too large or too small: use log_uniform_values"
        source.report.refuse(source.path, f"{text}, whose min and max are values", "InvalidValue")
        return None
    first, second = (-high, -low) if rules.inverse else (low, high)
    return _rounded(math.exp(first)), _rounded(math.exp(second))


def _normal(source: Fields, kind: str, rules: Distribution) -> tuple[int | float, int | float] | None:
    """Return the range of three deviations around the mean."""
    mean, deviation = source.number("mu"), source.number("sigma")
    mean, deviation = 0 if mean is None else mean, 1 if deviation is None else deviation
    low, high = mean - _SIGMAS * deviation, mean + _SIGMAS * deviation
    if deviation < 0 or (rules.log and max(abs(low), abs(high)) > _LARGEST_EXPONENT) or not math.isfinite(high - low):
        text = f"mu = {mean:g} and sigma = {deviation:g} have no range: give min and max with distribution uniform"
        source.report.refuse(source.path, text, "InvalidValue")
        return None
    text = f"{kind} becomes the range of three sigma around mu, drawn evenly: Podium has no such distribution"
    source.report.note(source.at("distribution"), text)
    if rules.log:
        low, high = _rounded(math.exp(low)), _rounded(math.exp(high))
    found = number_of(low), number_of(high)
    return (low, high) if found[0] is None or found[1] is None else (found[0], found[1])


def _rounded(number: float) -> float:
    """Return a number with twelve digits: the exponents of a sweep have fewer."""
    return float(f"{number:.12g}")
