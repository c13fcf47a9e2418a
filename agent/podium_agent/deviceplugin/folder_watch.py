"""Notice of changes in one folder, from the kernel's inotify; without inotify, the caller looks at fixed times.

The device plugin uses it to see a new socket of the kubelet within a millisecond. Python has no inotify of its own.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)
# inotify(7): IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF
_CHANGES = 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
_READ_BYTES = 1 << 16
POLL_SECONDS = 0.05  # between two looks without inotify
LOOK_SECONDS = 1.0  # with it: the folder itself may have been replaced


class FolderWatch:
    """Watch of a folder within a running event loop; `close` ends it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = asyncio.Event()
        self._descriptor: int | None = None
        self._watched: tuple[int, int] | None = None  # the folder that is watched
        self._trouble = ""
        self._watch()

    async def wait(self, longest: float = LOOK_SECONDS) -> None:
        """Return after a change in the folder, or when the caller should look in any case."""
        self._watch()
        with suppress(TimeoutError):
            async with asyncio.timeout(longest if self._watched else min(longest, POLL_SECONDS)):
                await self._changed.wait()
        self._changed.clear()

    def wake(self) -> None:
        """Let `wait` return."""
        self._changed.set()

    def forget(self) -> None:
        """Forget the changes until now."""
        if self._descriptor is not None:
            self._read(self._descriptor)
        self._changed.clear()

    def close(self) -> None:
        """End the watch."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = self._watched = None

    def _watch(self) -> None:
        """Watch the folder that has the path now."""
        try:
            status = os.stat(self._folder)
            if self._watched == (status.st_dev, status.st_ino):
                return
            self.close()
            self._descriptor = _inotify(self._folder)
        except OSError as error:
            self.close()
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("%s is looked at every %g s: %s", self._folder, POLL_SECONDS, error)
            return
        self._watched, self._trouble = (status.st_dev, status.st_ino), ""
        asyncio.get_running_loop().add_reader(self._descriptor, self._read, self._descriptor)
        self._changed.set()  # it may have changed before it was watched

    def _read(self, descriptor: int) -> None:
        with suppress(BlockingIOError):
            os.read(descriptor, _READ_BYTES)
        self._changed.set()


def _inotify(folder: Path) -> int:
    """Return a descriptor that is readable after a change in the folder. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "inotify_init1")
    if libc.inotify_add_watch(descriptor, os.fsencode(folder), _CHANGES) < 0:
        number = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(number, os.strerror(number), str(folder))
    return descriptor
