"""How long the operator waits before it tries again what the API server refuses."""

from __future__ import annotations

import time
from dataclasses import dataclass

from podium_core.domain.back_off import back_off_pause

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0


class BackOffError(Exception):
    """An action is not tried in this reconcile: it counts neither as carried out nor as refused."""


@dataclass(frozen=True, slots=True)
class RefusedAction:
    """Action that the API server refused (a quota, Pod Security, a webhook) `failures` times in sequence.

    One operator acts at a time, in reconciles: its pauses need no jitter.
    """

    message: str
    failures: int
    retry_at: float

    @property
    def backs_off(self) -> bool:
        """Whether the pause has not ended."""
        return time.monotonic() < self.retry_at


def refused_again(before: RefusedAction | None, message: str) -> RefusedAction:
    """Return the refusal after `before`, which backs off twice as long."""
    failures = 1 if before is None else before.failures + 1
    return RefusedAction(message, failures, time.monotonic() + back_off_pause(failures, FIRST_PAUSE, LONGEST_PAUSE))


def exceeds_quota(message: str) -> bool:
    """Return True if the API server refused an object because of a ResourceQuota, by its message."""
    return "exceeded quota" in message
