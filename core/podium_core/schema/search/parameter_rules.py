"""The rules of one parameter of the search space, as a table. See `schema.rules`."""

from __future__ import annotations

from podium_core.schema.rules import Rule
from podium_core.schema.search.spec import Parameter, ParameterType

# Searchers compute with squares and logarithms of these numbers, which must stay finite and above 0.
LARGEST, SMALLEST = 1e150, 1e-150
LARGEST_INT = 2**53  # above it, not every integer is a float
_PARAMETER = "spec.parameters[]"


def _type(parameter: Parameter, *types: ParameterType) -> bool:
    return parameter.type in types


def _ranged(p: Parameter) -> bool:
    return p.min is not None or p.max is not None or p.step is not None


def _whole(*numbers: float | None) -> bool:
    return all(number is None or number.is_integer() for number in numbers)


def _step_fits(p: Parameter) -> bool:
    if p.step is None or p.min is None or p.max is None or p.min >= p.max:
        return True  # nothing to compare, or another rule refuses it
    return p.step <= p.max - p.min


def _wide(low: float, high: float, scale: str) -> bool:
    return high - low >= SMALLEST and (scale != "log" or low <= 0.0 or low >= SMALLEST)


PARAMETER_RULES: tuple[Rule, ...] = (
    Rule(
        "BooleanWithRange",
        _PARAMETER,
        "!has(self.type) || self.type != 'boolean' || "
        "!(has(self.min) || has(self.max) || has(self.step) || has(dyn(self).values))",
        "parameter {name} is boolean, so it is true or false: remove min, max, step and values",
        lambda p: not _type(p, ParameterType.BOOLEAN) or not (_ranged(p) or p.values is not None),
    ),
    Rule(
        "CategoricalWithoutValues",
        _PARAMETER,
        "!has(self.type) || self.type != 'categorical' || has(dyn(self).values)",
        "parameter {name} is categorical: list its values",
        lambda p: not _type(p, ParameterType.CATEGORICAL) or p.values is not None,
    ),
    Rule(
        "RangeOrValuesRequired",
        _PARAMETER,
        "(has(self.type) && self.type in ['boolean', 'categorical']) || has(dyn(self).values) || "
        "(has(self.min) && has(self.max))",
        "parameter {name} needs min and max, or values",
        lambda p: (
            _type(p, ParameterType.BOOLEAN, ParameterType.CATEGORICAL)
            or p.values is not None
            or (p.min is not None and p.max is not None)
        ),
    ),
    Rule(
        "RangeAndValues",
        _PARAMETER,
        "(has(self.type) && self.type == 'boolean') || "
        "!(has(dyn(self).values) && (has(self.min) || has(self.max) || has(self.step)))",
        "parameter {name} has both a range (min, max, step) and values: keep one of them",
        lambda p: _type(p, ParameterType.BOOLEAN) or not (p.values is not None and _ranged(p)),
    ),
    Rule(
        "EmptyRange",
        _PARAMETER,
        "!has(self.min) || !has(self.max) || self.min < self.max",
        "parameter {name}: min must be less than max",
        lambda p: p.min is None or p.max is None or p.min < p.max,
        at="min",
        shows=("min", "max"),
    ),
    Rule(
        "LogOfNonPositive",
        _PARAMETER,
        "self.scale != 'log' || !has(self.min) || self.min > 0.0",
        "parameter {name}: a log scale needs min greater than 0; raise min, or use scale linear",
        lambda p: p.scale != "log" or p.min is None or p.min > 0,
        at="min",
        shows=("min",),
    ),
    Rule(
        "LogWithoutRange",
        _PARAMETER,
        "self.scale != 'log' || has(self.min) || "
        "!(has(dyn(self).values) || (has(self.type) && self.type == 'boolean'))",
        "parameter {name}: a log scale needs a range; remove scale, or give min and max",
        lambda p: (
            p.scale != "log" or p.min is not None or not (p.values is not None or _type(p, ParameterType.BOOLEAN))
        ),
        at="scale",
    ),
    Rule(
        "LogStepTooLarge",
        _PARAMETER,
        "self.scale != 'log' || !has(self.step) || !has(self.min) || self.min <= 0.0 || self.step <= self.min",
        "parameter {name}: on a log scale step must not be larger than min, or most trials would get min; "
        "reduce step, raise min, or list values",
        lambda p: p.scale != "log" or p.step is None or p.min is None or p.min <= 0.0 or p.step <= p.min,
        at="step",
        shows=("step", "min"),
    ),
    Rule(
        "ConditionOnItself",
        _PARAMETER,
        "!has(self.when) || self.when.parameter != self.name",
        "parameter {name} depends on itself: name another parameter in when, or remove when",
        lambda p: p.when is None or p.when.parameter != p.name,
        at="when",
    ),
    Rule(
        "StepBeyondRange",
        _PARAMETER,
        "!has(self.step) || !has(self.min) || !has(self.max) || self.min >= self.max || "
        "self.step <= self.max - self.min",
        "parameter {name}: step must not be larger than the range from min to max; reduce step",
        _step_fits,
        at="step",
        shows=("step", "min", "max"),
    ),
    Rule(
        "NotInteger",
        _PARAMETER,
        "!has(self.type) || self.type != 'int' || "
        "((!has(self.min) || self.min == double(int(self.min))) && "
        "(!has(self.max) || self.max == double(int(self.max))) && "
        "(!has(self.step) || self.step == double(int(self.step))))",
        "parameter {name} is of type int: min, max and step must be integers; or use type float",
        lambda p: not _type(p, ParameterType.INT) or _whole(p.min, p.max, p.step),
    ),
    Rule(
        "RangeTooLarge",
        _PARAMETER,
        f"(!has(self.min) || (self.min >= -{LARGEST:.0e} && self.min <= {LARGEST:.0e})) && "
        f"(!has(self.max) || (self.max >= -{LARGEST:.0e} && self.max <= {LARGEST:.0e}))",
        f"parameter {{name}}: min and max must be from -{LARGEST:.0e} to {LARGEST:.0e}, since a search computes with "
        "their squares; reduce the range, or let the script compute a power of the parameter",
        lambda p: all(number is None or abs(number) <= LARGEST for number in (p.min, p.max)),
        shows=("min", "max"),
    ),
    Rule(
        "RangeTooNarrow",
        _PARAMETER,
        f"!has(self.min) || !has(self.max) || self.min >= self.max || (self.max - self.min >= {SMALLEST:.0e} && "
        f"(self.scale != 'log' || self.min <= 0.0 || self.min >= {SMALLEST:.0e}))",
        f"parameter {{name}}: the range, and min on a log scale, must be at least {SMALLEST:.0e}: smaller numbers have "
        "few digits; let the script scale the parameter",
        lambda p: p.min is None or p.max is None or p.min >= p.max or _wide(p.min, p.max, p.scale),
        shows=("min", "max"),
    ),
    Rule(
        "IntegerTooLarge",
        _PARAMETER,
        f"!has(self.type) || self.type != 'int' || ((!has(self.min) || self.min >= -{LARGEST_INT}.0) && "
        f"(!has(self.max) || self.max <= {LARGEST_INT}.0))",
        f"parameter {{name}} is of type int: min and max must be from -{LARGEST_INT} to {LARGEST_INT} (2^53), since "
        "larger integers are rounded; reduce the range",
        lambda p: (
            not _type(p, ParameterType.INT)
            or ((p.min is None or p.min >= -LARGEST_INT) and (p.max is None or p.max <= LARGEST_INT))
        ),
        shows=("min", "max"),
    ),
    Rule(
        "StepTooSmall",
        _PARAMETER,
        "!has(self.step) || ((!has(self.min) || self.min + self.step > self.min) && "
        "(!has(self.max) || self.max - self.step < self.max))",
        "parameter {name}: step is lost in the rounding of min or max, so all points are equal; increase step",
        lambda p: (
            p.step is None or ((p.min is None or p.min + p.step > p.min) and (p.max is None or p.max - p.step < p.max))
        ),
        at="step",
        shows=("step",),
    ),
)
