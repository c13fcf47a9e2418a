"""How a value that is not finite travels: JSON knows neither NaN nor infinity.

Called by the agent before it writes a curve, and by everything here that must tell a diverged trial from a bad one.
"""

from __future__ import annotations

import math
import sys

_WORST = sys.float_info.max


def to_wire(value: float, maximize: bool) -> float:
    """The value itself, or the worst finite double for NaN and either infinity (a loss of -inf is no success)."""
    if math.isfinite(value):
        return value
    return -_WORST if maximize else _WORST


def diverged(value: float) -> bool:
    """True for NaN, infinity and what `to_wire` makes of them."""
    return not math.isfinite(value) or abs(value) == _WORST
