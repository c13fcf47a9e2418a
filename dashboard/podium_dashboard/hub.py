"""The number of the newest state, and how tasks wait for the next one."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Hub:
    """A version that grows with each change. Any number of tasks can wait for it; none has a queue."""

    def __init__(self) -> None:
        self.version = 0
        self.states = 0  # changes of the source
        self._event = asyncio.Event()

    def state_changed(self) -> None:
        """Count a change of the source; the other changes come from background tasks."""
        self.states += 1
        self.changed()

    def changed(self) -> None:
        """Count a change and wake all that wait."""
        self.version += 1
        self._event.set()
        self._event = asyncio.Event()

    async def wait_newer(self, version: int, timeout: float) -> None:
        """Wait until there is a newer version, or until the time is over."""
        if self.version > version:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout)
