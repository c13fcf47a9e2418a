"""Wire form of values that are not finite: JSON has neither NaN nor infinity.

The agent calls it before it writes a curve. Everything in this package that must recognise a diverged trial uses it.
"""

from __future__ import annotations

import math
import sys

_WORST = sys.float_info.max


def to_wire(value: float, maximize: bool) -> float:
    """Return the value, or the worst finite double for NaN and infinity (a loss of -inf is an error)."""
    if math.isfinite(value):
        return value
    return -_WORST if maximize else _WORST


def diverged(value: float) -> bool:
    """Return whether the value is NaN, infinite, or what `to_wire` makes of them."""
    return not math.isfinite(value) or abs(value) == _WORST
