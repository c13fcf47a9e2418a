"""Blocking calls with a timeout, each made in a thread of its own.

The method `cuda-checkpoint` uses it: a driver that hangs must not block the agent. A thread cannot be stopped, so a
call may still succeed after its timeout. Its `undo` function then reverts the effect in the same thread.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)


class DriverTimeoutError(Exception):
    """The driver did not answer in time."""


class NoThreadError(OSError):
    """No thread could start, so the call was not made.

    The node, or the agent's cgroup, has no free pid or memory.
    """


async def call_with_timeout(seconds: float, act: Callable[[], T], undo: Callable[[], object] | None = None) -> T:
    """Return the result of `act`; raise DriverTimeoutError if it does not return in time.

    Raises NoThreadError if no thread can start. `undo` is called if `act` succeeds after its timeout or cancellation.
    """
    call = _Call(act, undo)
    call.start()
    wanted = False
    try:
        async with asyncio.timeout(seconds):  # `wait_for` of Python 3.11 can swallow a cancellation
            answer = await call.answer
        wanted = True
    except TimeoutError as error:
        raise DriverTimeoutError(f"no answer within {seconds:g} s") from error
    finally:
        call.settle(wanted)
    return answer


class _Call(Generic[T]):
    """One call with its thread and the future on which the event loop waits.

    The thread stays until the caller has taken the answer or given up. So it can undo a call whatever the caller
    decides, without another thread, which the node might not have.
    """

    def __init__(self, act: Callable[[], T], undo: Callable[[], object] | None) -> None:
        self._act = act
        self._undo = undo
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self._loop.create_future()
        self._settled = threading.Event()
        self._wanted = False

    def start(self) -> None:
        try:
            threading.Thread(target=self._run, daemon=True, name="driver call").start()
        except (RuntimeError, MemoryError) as error:
            text = f"{os.strerror(errno.EAGAIN)}: no thread for a call of the driver ({error})"
            raise NoThreadError(errno.EAGAIN, text) from error

    def settle(self, wanted: bool) -> None:
        """Note whether the caller has the answer; if not, a call that succeeds is undone."""
        self._wanted = wanted
        self._settled.set()

    def _run(self) -> None:
        try:
            answer = self._act()
        except Exception as error:  # raised again where the call is awaited
            self._deliver(partial(self.answer.set_exception, error))
            return
        self._deliver(partial(self.answer.set_result, answer))
        self._settled.wait()
        if not self._wanted:
            self._undo_late()

    def _deliver(self, settle: Callable[[], None]) -> None:
        def once() -> None:
            if not self.answer.done():
                settle()

        with suppress(RuntimeError):  # the event loop has ended in the meantime
            self._loop.call_soon_threadsafe(once)

    def _undo_late(self) -> None:
        if self._undo is None:
            return
        try:
            self._undo()
        except Exception as error:
            log.error("a driver call succeeded after its timeout and could not be undone: %s", error)
