"""Kubernetes quantities ("12Gi", "500M") as numbers of bytes. Used by the operator for what trials declare."""

from __future__ import annotations

import re
from decimal import Decimal

_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_FACTORS |= {f"{prefix}i": 1024 ** (power + 1) for power, prefix in enumerate("KMGTP")}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMGTP]|[KMGTP]i|m|)")


def to_bytes(quantity: str) -> int:
    """Bytes, rounded up. Raises ValueError that names the quantity and the cure."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(f"{quantity!r} is no quantity: write bytes with a suffix, such as 12Gi or 500M")
    number, suffix = Decimal(match[1]), match[2]
    if suffix == "m":
        return int(-(-number // 1000))
    return int(-(-(number * _FACTORS[suffix]) // 1))
