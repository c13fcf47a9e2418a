"""Calls that may never return, made in a thread each, so that whoever waits can give them up.

Used by the method `cuda-checkpoint`: a driver that hangs must not hang the agent. A thread cannot be ended, so a call
that was given up may still have its effect later: then its `amends` undo it, in that thread.
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


class GivenUpError(Exception):
    """No answer within the time."""


async def give_up_after(seconds: float, act: Callable[[], T], amends: Callable[[], object] | None = None) -> T:
    """The answer of `act`, or GivenUpError. `amends` is called if it succeeds after it was given up or cancelled."""
    call = _Call(act, amends)
    threading.Thread(target=call.run, daemon=True, name="driver call").start()
    try:
        return await asyncio.wait_for(call.answer, seconds)
    except TimeoutError as error:
        call.give_up()
        raise GivenUpError(f"no answer within {seconds:g} s") from error
    except asyncio.CancelledError:
        call.give_up()
        raise


class _Call(Generic[T]):
    """One call: its thread, and the future that the event loop waits for."""

    def __init__(self, act: Callable[[], T], amends: Callable[[], object] | None) -> None:
        self._act = act
        self._amends = amends
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self._loop.create_future()
        self._guard = threading.Lock()
        self._given_up = False
        self._succeeded = False

    def run(self) -> None:
        try:
            answer = self._act()
        except Exception as error:  # the waiter's to judge
            self._deliver(partial(self.answer.set_exception, error))
            return
        with self._guard:
            self._succeeded = True
            late = self._given_up
        if late:
            self._make_amends()
        else:
            self._deliver(partial(self.answer.set_result, answer))

    def give_up(self) -> None:
        """Called in the event loop. If the call had succeeded just now, amends are made all the same."""
        with self._guard:
            self._given_up = True
            late = self._succeeded
        if late:
            threading.Thread(target=self._make_amends, daemon=True, name="driver amends").start()

    def _deliver(self, settle: Callable[[], None]) -> None:
        def once() -> None:
            if not self.answer.done():
                settle()

        with suppress(RuntimeError):  # the event loop has ended meanwhile
            self._loop.call_soon_threadsafe(once)

    def _make_amends(self) -> None:
        if self._amends is None:
            return
        try:
            self._amends()
        except Exception as error:
            log.error("a driver call that was given up has succeeded since, and could not be undone: %s", error)
