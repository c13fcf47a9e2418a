"""Exponential back-off with jitter, for everything that repeats a call to the API server."""

from __future__ import annotations

import random

from podium_core.domain.backoff import backoff_pause

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 20.0


class Backoff:
    """Exponential pauses in seconds between attempts, each shortened by up to a half ("equal jitter").

    The jitter keeps the components of a cluster from returning at the same moment. `chance` supplies it.
    """

    def __init__(
        self, chance: random.Random | None = None, *, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE
    ) -> None:
        self._chance = chance or random.Random()
        self._first = first
        self._longest = longest
        self.failures = 0  # since the last success

    def reset(self) -> None:
        """Start with the shortest pause again, after a success."""
        self.failures = 0

    def pause(self, retry_after: float = 0.0) -> float:
        """Return the next pause; `retry_after` is the time that the server asked to wait at least."""
        self.failures += 1
        whole = backoff_pause(self.failures, self._first, self._longest)
        return max(whole * self._chance.uniform(0.5, 1.0), retry_after * self._chance.uniform(1.0, 1.25))
