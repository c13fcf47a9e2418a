"""Seconds since the Unix epoch that never jump: the API server's time, carried forward by the monotonic clock.

The wall clock of a node may be set back or forward at any moment, and differs from node to node. The time that Podium
stores, compares and measures with is therefore the API server's, from the `Date` header of its responses. The first
response sets it. Afterwards it follows the server slowly, so that a clock that is set on the server does not jump here
either. A process without a response uses its wall clock, as it was when the process started.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RESOLUTION = 1.0  # seconds: a Date header has no fractions
FASTEST = 0.05  # the time runs at most this much faster or slower than the monotonic clock


class ServerClock:
    """The time of the API server; `monotonic` and `wall` are the clocks of this machine."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic = monotonic
        self._at = monotonic()
        self._now = wall()
        self._behind = 0.0  # seconds by which the server is ahead of this clock, as far as known
        self._known = False
        self._guard = threading.Lock()

    def now(self) -> float:
        """Return the time.

        It never decreases after the first response, and advances like the monotonic clock within FASTEST.
        """
        with self._guard:
            return self._advance()

    def _advance(self) -> float:
        at = self._monotonic()
        passed = max(0.0, at - self._at)
        step = math.copysign(min(abs(self._behind), FASTEST * passed), self._behind)
        self._at, self._now, self._behind = at, self._now + passed + step, self._behind - step
        return self._now

    def observe(self, date: str | None, seconds: float) -> None:
        """Take over the `Date` header of a response that was requested `seconds` ago.

        A header without a date is ignored.
        """
        try:
            server = parsedate_to_datetime(date or "").timestamp()
        except (ValueError, TypeError, OverflowError):
            return
        # the server wrote the header between the request and the response, and cut off the fraction
        earliest, latest = server, server + RESOLUTION + max(0.0, seconds)
        with self._guard:
            here = self._advance()
            behind = earliest - here if here < earliest else min(0.0, latest - here)
            if self._known:
                self._behind = behind
            else:
                self._known, self._now = True, here + behind


_CLOCK = ServerClock()


def now() -> float:
    """Return the API server's time in seconds since the Unix epoch, as this process knows it."""
    return _CLOCK.now()


def micro_time() -> str:
    """Return the time as Leases hold it (Kubernetes' MicroTime)."""
    return datetime.fromtimestamp(now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def observe(date: str | None, seconds: float) -> None:
    """Take over the `Date` header of a response that was requested `seconds` ago."""
    _CLOCK.observe(date, seconds)
