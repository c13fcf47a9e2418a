"""Kubernetes quantities ("12Gi", "500M", "1e9") as numbers.

The operator parses what trials declare. The extender parses what a pod frees when it is deleted.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from functools import lru_cache

_FACTORS = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(1000)}
_FACTORS |= {prefix: Decimal(1000) ** (power + 2) for power, prefix in enumerate("MGTPE")}
_FACTORS |= {f"{prefix}i": Decimal(1024) ** (power + 1) for power, prefix in enumerate("KMGTPE")}
# All forms that the API server accepts for a pod, except signs and exponents larger than any machine.
_QUANTITY = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i|))")


def to_bytes(quantity: str) -> int:
    """Return the bytes of a quantity, rounded up. Raises ValueError with the quantity and the cure."""
    return -(-to_thousandths(quantity) // 1000)


@lru_cache(maxsize=4096)  # the pods of a cluster request the same few amounts
def to_thousandths(quantity: str) -> int:
    """Return a quantity in thousandths of its unit (CPUs too), rounded up.

    Raises ValueError as `to_bytes` does.
    """
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(f"{quantity!r} is not a quantity: write bytes with a suffix, such as 12Gi or 500M")
    number, exponent, suffix = match.groups()
    factor = _FACTORS[suffix] if exponent is None else Decimal(10) ** int(exponent)
    return math.ceil(Decimal(number) * factor * 1000)
