"""Validation of numeric input: one exception with code, item, field and message.

The packages `queueing`, `online` and `sharing` validate their input with these functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium_core.domain.phrases import one_line


class InputError(ValueError):
    """Invalid input: `code` is a CamelCase identifier, `item` and `field` give the location.

    `item` is empty if no single item is at fault.
    """

    def __init__(self, code: str, field: str, message: str, item: str = "") -> None:
        super().__init__(one_line(f"{item}.{field}: {message}" if item else f"{field}: {message}"))
        self.code = code
        self.field = field
        self.item = item


def require_number(
    value: float, field: str, *, item: str = "", above: float = -math.inf, at_least: float = -math.inf
) -> float:
    """Return `value` if it is a finite number > `above` and >= `at_least`; raise InputError otherwise."""
    if math.isnan(value):
        raise InputError("NotANumber", field, "the value is not a number; give a finite number", item)
    if math.isinf(value):
        raise InputError("NotFinite", field, f"{value} is not finite; give a finite number", item)
    if value <= above:
        raise InputError("TooSmall", field, f"{value:g} is out of range; give a number above {above:g}", item)
    if value < at_least:
        raise InputError("TooSmall", field, f"{value:g} is out of range; give {at_least:g} or more", item)
    return value


def require_count(value: int, field: str, *, item: str = "", at_least: int = 1) -> int:
    """Return `value` if it is a whole number >= `at_least`; raise InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError("NotInteger", field, f"{value!r} is not a whole number; give a whole number", item)
    if value < at_least:
        raise InputError("TooSmall", field, f"{value} is out of range; give {at_least} or more", item)
    return int(value)


def require_numbers(
    values: NDArray[np.float64],
    field: str,
    items: Sequence[str] | None = None,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
) -> NDArray[np.float64]:
    """Return `values` (n, ...) if each is valid for `require_number`; raise InputError otherwise.

    The error names the first invalid value by its item, or by its row if there are no item names.
    """
    wrong = ~np.isfinite(values) | (values <= above) | (values < at_least)
    if wrong.any():
        first = tuple(int(part) for part in np.argwhere(wrong)[0])
        item = items[first[0]] if items is not None else f"[{first[0]}]"
        require_number(float(values[first]), field, item=item, above=above, at_least=at_least)
    return values
