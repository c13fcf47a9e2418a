"""Calls that may hang, such as a read of a network volume: each has a thread of its own and a time limit.

The checkpoint watch and the sources of metrics use it. The threads are not those of asyncio's pool, which is shared and
small, and which a process waits for when it ends.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class BusyError(Exception):
    """The call before still hangs, or everything was closed."""


class HangingCalls(Generic[T]):
    """Calls one after the other. While one hangs, no other begins.

    `release` runs once after `close`, when no call uses the resource any more.
    """

    def __init__(self, name: str, release: Callable[[], None]) -> None:
        self._name = name
        self._release = release
        self._lock = threading.Lock()  # guards the two below
        self._busy = False
        self._closed = False

    async def call(self, work: Callable[[], T], seconds: float) -> T:
        """Return the result of the call.

        Raises its error, TimeoutError if it takes longer, BusyError, or OSError (EAGAIN) if no thread can start.
        """
        with self._lock:
            if self._busy or self._closed:
                raise BusyError
            self._busy = True
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        try:
            threading.Thread(target=self._run, args=(work, loop, answer), name=self._name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # the node, or the agent's cgroup, has no free pid or memory
            self._finish()
            raise OSError(errno.EAGAIN, f"{os.strerror(errno.EAGAIN)} ({error})") from error
        async with asyncio.timeout(seconds):
            return await answer

    def close(self) -> None:
        """Release the resource; a thread that hangs in it releases it when it answers."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if not self._busy:
                self._release_once()

    def _run(self, work: Callable[[], T], loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T]) -> None:
        result: T | None = None
        failure: Exception | None = None
        try:
            result = work()
        except Exception as error:
            failure = error
        finally:
            self._finish()

        def deliver() -> None:
            if answer.done():
                return
            if failure is not None:
                answer.set_exception(failure)
            else:
                answer.set_result(result)  # type: ignore[arg-type]

        with suppress(RuntimeError):  # the agent has stopped meanwhile
            loop.call_soon_threadsafe(deliver)

    def _finish(self) -> None:
        with self._lock:
            self._busy = False
            if self._closed:
                self._release_once()

    def _release_once(self) -> None:
        with suppress(OSError):  # a network volume reports late errors at close; the descriptor is free all the same
            self._release()
