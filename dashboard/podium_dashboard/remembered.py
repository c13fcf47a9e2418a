"""Answers to slow questions, kept for a short time and in a bounded number."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Asks each question once in a while, also if many wait for its answer. An error is not kept."""

    def __init__(self, ask: Callable[[K], Awaitable[V]], seconds: Callable[[V], float], most: int) -> None:
        """Prepare for at most `most` answers, each of which is kept for `seconds(answer)`."""
        self._ask = ask
        self._seconds = seconds
        self._most = most
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._running: dict[K, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        """Return the number of answers that are kept."""
        return len(self._kept)

    async def get(self, key: K) -> V:
        """Return the answer that is kept, or ask. Raises what the question raises."""
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() < kept[0]:
            return kept[1]
        running = self._running.get(key)
        if running is None:
            running = asyncio.create_task(self._fetch(key))
            self._running[key] = running
            running.add_done_callback(lambda task: self._end(key, task))
        return await asyncio.shield(running)

    async def _fetch(self, key: K) -> V:
        begun = time.monotonic()
        answer = await self._ask(key)
        self._kept[key] = (begun + self._seconds(answer), answer)
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return answer

    def _end(self, key: K, task: asyncio.Task[V]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # it was raised to all that waited; perhaps none did
