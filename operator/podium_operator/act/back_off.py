"""How long the operator waits before it tries again what the API server refuses. Used by `actuator` and `requeuing`."""

from __future__ import annotations

import time
from dataclasses import dataclass

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0


class HeldBackError(Exception):
    """Nothing is done of an action in this cycle: it is counted neither as carried out nor as refused."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Of a pod that a quota, Pod Security or a webhook refuses for now, or keeps; tried again ever more seldom."""

    message: str
    pause: float
    again_at: float

    @property
    def lasts(self) -> bool:
        return time.monotonic() < self.again_at


def refused(before: Refusal | None, message: str) -> Refusal:
    pause = FIRST_PAUSE if before is None else min(before.pause * 2, LONGEST_PAUSE)
    return Refusal(message, pause, time.monotonic() + pause)
