"""Blocking calls with a timeout, each made in a thread of its own.

The method `cuda-checkpoint` uses it: a driver that hangs must not block the agent. A thread cannot be stopped, so a
call may still succeed after its timeout. Its `undo` function then reverts the effect in the same thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)


class DriverTimeoutError(Exception):
    """The driver did not answer in time."""


async def call_with_timeout(seconds: float, act: Callable[[], T], undo: Callable[[], object] | None = None) -> T:
    """Return the result of `act`; raise DriverTimeoutError if it does not return in time.

    `undo` is called if `act` succeeds after its timeout or cancellation.
    """
    call = _Call(act, undo)
    threading.Thread(target=call.run, daemon=True, name="driver call").start()
    try:
        return await asyncio.wait_for(call.answer, seconds)
    except TimeoutError as error:
        call.give_up()
        raise DriverTimeoutError(f"no answer within {seconds:g} s") from error
    except asyncio.CancelledError:
        call.give_up()
        raise


class _Call(Generic[T]):
    """One call with its thread and the future on which the event loop waits."""

    def __init__(self, act: Callable[[], T], undo: Callable[[], object] | None) -> None:
        self._act = act
        self._undo = undo
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self._loop.create_future()
        self._guard = threading.Lock()
        self._given_up = False
        self._succeeded = False

    def run(self) -> None:
        try:
            answer = self._act()
        except Exception as error:  # raised again where the call is awaited
            self._deliver(partial(self.answer.set_exception, error))
            return
        with self._guard:
            self._succeeded = True
            late = self._given_up
        if late:
            self._undo_late()
        else:
            self._deliver(partial(self.answer.set_result, answer))

    def give_up(self) -> None:
        """Stop waiting for the call; undo it if it has succeeded in the meantime."""
        with self._guard:
            self._given_up = True
            late = self._succeeded
        if late:
            threading.Thread(target=self._undo_late, daemon=True, name="driver undo").start()

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
