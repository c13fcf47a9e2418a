"""How a wrong number is refused: one exception with code, task, field and a sentence. Called by every part of
`queueing`, `online` and `sharing` where input comes in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class InputError(ValueError):
    """A "no" about input: `code` (CamelCase) for programs, `task` (empty where no task is to blame) and `field`."""

    def __init__(self, code: str, field: str, message: str, task: str = "") -> None:
        super().__init__(f"{task}.{field}: {message}" if task else f"{field}: {message}")
        self.code = code
        self.field = field
        self.task = task


def require(value: float, field: str, *, task: str = "", above: float = -math.inf, least: float = -math.inf) -> float:
    """`value` if it is a finite number > `above` and >= `least`."""
    if math.isnan(value):
        raise InputError("NotANumber", field, "is not a number; give a finite one", task)
    if math.isinf(value):
        raise InputError("NotFinite", field, f"{value} is not finite; give a finite number", task)
    if value <= above:
        raise InputError("TooSmall", field, f"{value:g} is out of range; give a number above {above:g}", task)
    if value < least:
        raise InputError("TooSmall", field, f"{value:g} is out of range; give {least:g} or more", task)
    return value


def require_count(value: int, field: str, *, task: str = "", least: int = 1) -> int:
    """`value` if it is a whole number >= `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError("NotInteger", field, f"{value!r} is no count; give a whole number", task)
    if value < least:
        raise InputError("TooSmall", field, f"{value} is out of range; give {least} or more", task)
    return int(value)


def require_all(
    values: NDArray[np.float64],
    field: str,
    tasks: Sequence[str] | None = None,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
) -> NDArray[np.float64]:
    """`values` (n, ...) if `require` accepts each; the first wrong one is named by its task (else by its row)."""
    wrong = ~np.isfinite(values) | (values <= above) | (values < least)
    if wrong.any():
        place = tuple(int(part) for part in np.argwhere(wrong)[0])
        task = tasks[place[0]] if tasks is not None else f"[{place[0]}]"
        require(float(values[place]), field, task=task, above=above, least=least)
    return values
