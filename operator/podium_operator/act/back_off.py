"""Exponential back-off: how long the operator waits before it tries again what the API server refuses."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0


def pauses(first: float, longest: float = math.inf) -> Iterator[float]:
    """Yield the pauses before retries: `first` seconds, then twice the last one, at most `longest`."""
    pause = first
    while True:
        yield pause
        pause = _doubled(pause, longest)


class BackOffError(Exception):
    """An action is not tried in this reconcile: it counts neither as carried out nor as refused."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """Refusal by the API server (a quota, Pod Security, a webhook) and the pause before a retry."""

    message: str
    pause: float
    retry_at: float

    @property
    def active(self) -> bool:
        """Whether the pause has not ended."""
        return time.monotonic() < self.retry_at


def next_back_off(before: BackOff | None, message: str) -> BackOff:
    """Return the back-off after `before`, with twice its pause."""
    pause = FIRST_PAUSE if before is None else _doubled(before.pause, LONGEST_PAUSE)
    return BackOff(message, pause, time.monotonic() + pause)


def _doubled(pause: float, longest: float) -> float:
    return min(pause * 2, longest)
