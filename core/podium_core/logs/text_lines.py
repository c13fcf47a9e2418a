"""Lines of text with names and values: `epoch 3/10 - loss: 0.41 - val_acc=0.81`.

Without a filter of the job, a value follows the metric's name and `=` or `:`. The step may also follow its name
directly, as in "Epoch 3/10" and "epoch [3]". Of a name that is repeated, the last value counts. `best val_acc: 0.95`,
`target val_acc: 0.99` and the like report nothing of `val_acc`: they are not values of this step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import re2

from podium_core.logs.budget import LineBudget
from podium_core.logs.filters import MAX_FILTERED, compiled, filter_error, matches
from podium_core.logs.printed_numbers import number_of_text, printed_number

Values = dict[str, float]
TextReader = Callable[[str, LineBudget], Values]
_NOT_OF_STEP = "best|target|min|minimum|max|maximum|prev|previous"  # before a name: the value is of another step
_NOT_IN_NAME = r"(?:^|[^\pL\pN_|./@-])"  # what may precede a name


def default_reader(wanted: Mapping[str, bool], step_key: str) -> TextReader:
    """Return a function that reads the wanted names of a text.

    `wanted`: name, and whether it counts steps.
    """
    names = "|".join(re2.escape(name) for name in sorted(wanted, key=len, reverse=True))
    # lazy: `best val_acc` may be the name of a metric
    named = compiled(rf"{_NOT_IN_NAME}(?P<other>(?i:{_NOT_OF_STEP})\s+)??(?P<name>{names})[\"']?\s*[=:]\s*")
    loose = compiled(rf"(?:^|[^\pL\pN_.]){re2.escape(step_key)}\s*[=:#\[(]?\s*(?P<digit>[0-9])", True)

    digit = loose.groupindex["digit"]

    def read(text: str, budget: LineBudget) -> Values:
        values: Values = {}
        for match in matches(named, text, budget):
            name = match.group("name")
            if match.group("other") and not wanted[name]:
                continue
            number = printed_number(text, match.end(), counter=wanted[name])
            if number is not None:
                values[name] = number.value
        if step_key not in values:
            for match in matches(loose, text, budget):
                number = printed_number(text, match.start(digit), counter=True)
                if number is not None:
                    values[step_key] = number.value
                    break
        return values

    return read


def filter_reader(pattern: str, wanted: Mapping[str, bool], step_key: str) -> TextReader:
    """Return a function that reads the wanted names by the job's own expression.

    Raises ValueError if the expression is invalid.
    """
    wrong = filter_error(pattern)
    if wrong is not None:
        raise ValueError(f"metrics.filter: {wrong}")
    expression = compiled(pattern)
    loose = default_reader({step_key: True}, step_key)
    value_group = expression.groupindex["value"]

    def read(text: str, budget: LineBudget) -> Values:
        values: Values = {}
        for match in matches(expression, text[:MAX_FILTERED], budget):
            name, value = match.group("name"), match.group("value")
            counter = wanted.get(name)
            if counter is None or value is None or _cut(text, match.end(value_group)):
                continue
            number = number_of_text(value, counter=counter)
            if number is not None:
                values[name] = number
        if step_key not in values:
            values |= loose(text, budget)
        return values

    return read


def _cut(text: str, end: int) -> bool:
    """Return whether a number continues after `end`: the expression matched only its beginning."""
    after = text[end : end + 2]
    return after[:1].isdecimal() or (after[:1] in (".", ",") and after[1:].isdecimal())
