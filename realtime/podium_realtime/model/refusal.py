"""The one exception by which this room says no: code, task, field, and a sentence with the cure.

Raised by the dataclasses of `model`, by `admission` and by the runtime; `podium realtime` prints it.
"""

from __future__ import annotations

import math


class RealtimeError(ValueError):
    """`code` is CamelCase, `where` is the task and field ("task cam-3: period") or the setting that is wrong."""

    def __init__(self, code: str, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.code = code
        self.where = where
        self.message = message


def require_positive(value: float, where: str, unit: str) -> None:
    """Raises RealtimeError unless `value` is finite and above 0."""
    if not (math.isfinite(value) and value > 0.0):
        raise RealtimeError("InvalidValue", where, f"{value:g} {unit} will not do; give a finite number above 0")


def require_between(value: float, low: float, high: float, where: str) -> None:
    """Raises RealtimeError unless low <= value <= high."""
    if not low <= value <= high:
        raise RealtimeError("InvalidValue", where, f"{value:g} is outside {low:g} to {high:g}; give a value between")
