"""Kubernetes quantities ("12Gi", "500M") as numbers. Used by the operator for what trials
declare, and by the extender for what a pod frees when it goes.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_FACTORS |= {f"{prefix}i": 1024 ** (power + 1) for power, prefix in enumerate("KMGTP")}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMGTP]|[KMGTP]i|m|)")


def to_bytes(quantity: str) -> int:
    """Bytes, rounded up. Raises ValueError that names the quantity and the cure."""
    return -(-to_thousandths(quantity) // 1000)


def to_thousandths(quantity: str) -> int:
    """Thousandths of anything that a pod requests (CPUs too), rounded up. Raises ValueError as `to_bytes`."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(f"{quantity!r} is no quantity: write bytes with a suffix, such as 12Gi or 500M")
    number, suffix = Decimal(match[1]), match[2]
    return math.ceil(number if suffix == "m" else number * _FACTORS[suffix] * 1000)
