"""Many browsers that look at once: open streams of pages, read by one thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp


class Browsers:
    """Streams of pages; for each the text that came last."""

    def __init__(self, base: str, headers: Mapping[str, str], paths: Sequence[str]) -> None:
        self._base = base
        self._headers = headers
        self._paths = paths
        self._last = [""] * len(paths)
        self._wanted = "\0"  # never part of a stream
        self._reached: set[int] = set()

    @contextmanager
    def looking(self) -> Iterator[Browsers]:
        """Read the streams during the block."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        reading = asyncio.run_coroutine_threadsafe(_started(self._read_all()), loop).result(30.0)
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(_ended(reading), loop).result(30.0)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10.0)

    async def _read_all(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers) as session:
            await asyncio.gather(*(self._read(session, number) for number in range(len(self._paths))))

    async def _read(self, session: aiohttp.ClientSession, number: int) -> None:
        async with session.get(self._base + self._paths[number]) as response:
            async for chunk in response.content.iter_any():
                text = self._last[number][-100:] + chunk.decode("utf-8", "replace")
                if self._wanted in text:
                    self._reached.add(number)
                self._last[number] = text[-100:]

    def wait_connected(self, seconds: float) -> None:
        """Wait until every stream has sent something. Ends the program after a while."""
        end = time.monotonic() + seconds
        while not all(self._last):
            if time.monotonic() > end:
                raise SystemExit(f"only {sum(map(bool, self._last))} of {len(self._last)} streams are open")
            time.sleep(0.05)

    def expect(self, text: str) -> None:
        """Count the streams that send this text from now on."""
        self._wanted = text

    def wait_reached(self, seconds: float) -> int:
        """Wait until every stream has sent the expected text; return how many have."""
        end = time.monotonic() + seconds
        while len(self._reached) < len(self._paths) and time.monotonic() < end:
            time.sleep(0.05)
        return len(self._reached)


async def _started(reading: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(reading)


async def _ended(reading: asyncio.Task[None]) -> None:
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
