"""The exception that this package raises for invalid input, and two checks that raise it."""

from __future__ import annotations

import math


class RealtimeError(ValueError):
    """Invalid input or a back-end that cannot run.

    `code`: the reason in CamelCase.
    `where`: the task and field ("task cam-3: period"), or the setting, that is wrong.
    `message`: what is wrong with it and what to do.
    """

    def __init__(self, code: str, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.code = code
        self.where = where
        self.message = message


def require_positive(value: float, where: str, unit: str) -> None:
    """Raise RealtimeError unless `value` is finite and greater than 0."""
    if not (math.isfinite(value) and value > 0.0):
        problem = f"must be a finite number greater than 0 (got {value:g} {unit})"
        raise RealtimeError("InvalidValue", where, problem)


def require_between(value: float, low: float, high: float, where: str) -> None:
    """Raise RealtimeError unless low <= value <= high."""
    if not low <= value <= high:
        raise RealtimeError("InvalidValue", where, f"must be from {low:g} to {high:g} (got {value:g})")
