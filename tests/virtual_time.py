"""An event loop whose clock jumps to the next timer, so that hours of retries take milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
TICK = 1e-6


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that never waits: it advances the clock by the time that it was asked to wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("every task waits, and no timer is set: the test would wait forever")
        if timeout > 0:
            self.now += max(timeout, TICK)  # a shorter time could be lost in rounding, and the clock would stand still
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which starts at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
