"""Lock that allows one agent a node: a second one waits until the first has ended, and reports why.

A second agent appears during a rolling update, for example. Two agents would each serve half of the gates and would
freeze trials without knowing of each other. The kernel releases the lock when its process ends. The lock file is not
in the folder that is mounted into trials, because a trial could take the lock there.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.2


class NodeLock:
    """The lock of this node; `trouble` explains why this agent does not act yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.trouble: str | None = "AgentLockHeld: the lock of this node was not requested yet"

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Wait without a limit for the lock, and hold it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while not self._take(file):  # noqa: ASYNC110 - another process releases it
                await asyncio.sleep(LOOK_SECONDS)
            with suppress(OSError):  # a full disk: the pid is only for the message of another agent
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
