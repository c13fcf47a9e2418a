"""Time of a run: seconds since the Unix epoch that advance steadily, whatever is done to the machine's clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SteadyClock:
    """Clock that takes the wall clock's time once, and afterwards adds the time of the monotonic clock.

    `not_before`: a time that a stored run has reached. A clock that was set back while no runner ran must not repeat
    it.
    """

    def __init__(self, not_before: float = 0.0) -> None:
        self._start = max(time.time(), not_before)
        self._monotonic = time.monotonic()

    def now(self) -> float:
        """Return the present time."""
        return self._start + (time.monotonic() - self._monotonic)

    def ahead(self) -> float:
        """Return the seconds by which the wall clock, which scripts read, is ahead of this one."""
        return time.time() - self.now()


def moment(seconds: float) -> datetime:
    """Return the time as the API models hold it."""
    return datetime.fromtimestamp(seconds, UTC)
