"""One agent a node: a second one (a rolling update, a mistake) waits until the first has ended, and says so.

Two would each hold half of the gates and freeze behind each other's back. The kernel drops the lock with its process,
so one that was killed never leaves it behind. It is not in the folder that trials see: any of them could take it there.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.2


class NodeLock:
    """`trouble` is the sentence that says why this agent does nothing yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.trouble: str | None = "AgentLockHeld: the lock of this node has not been asked for yet"

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Waits for as long as it takes."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while not self._take(file):  # noqa: ASYNC110 - another process lets go of it
                await asyncio.sleep(LOOK_SECONDS)
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
            self.trouble = None
            yield
        finally:
            os.close(file)

    def _take(self, file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(file, 32, 0).decode(errors="replace") or "unknown"
            trouble = f"AgentLockHeld: the agent with pid {owner} holds {self._path}; this one waits until it has ended"
            if trouble != self.trouble:
                log.warning("%s", trouble)
            self.trouble = trouble
            return False
        return True
