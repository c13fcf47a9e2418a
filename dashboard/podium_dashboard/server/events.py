"""The stream of one browser: the fragments that have changed since it got them last.

A browser has no queue. While it is slow, nothing is prepared for it; then it gets the newest state only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from starlette.types import Receive, Scope, Send

from podium_dashboard.hub import Hub
from podium_dashboard.pages.page import PageRef
from podium_dashboard.pages.renderer import FRAME_SECONDS, TICK_SECONDS
from podium_dashboard.server.viewer import Pages, RefusedError

SLICE_BYTES = 1 << 16
SEND_SECONDS = 30.0  # for which a browser may read nothing
QUIET_SECONDS = 15.0  # after which a comment shows that the connection lives
LONGEST_SECONDS = 3600.0  # of one connection; the browser opens the next one by itself
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]


class EventStream:
    """Response that sends the changes of a page until the browser or the time limit ends it."""

    def __init__(self, pages: Pages, hub: Hub, ref: PageRef) -> None:
        self._pages = pages
        self._hub = hub
        self._ref = ref

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until one of both sides ends."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        tasks = {asyncio.create_task(self._send_all(send)), asyncio.create_task(_disconnected(receive))}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    async def _send_all(self, send: Send) -> None:
        try:
            async with asyncio.timeout(LONGEST_SECONDS), aclosing(self._messages()) as messages:
                async for message in messages:
                    async with asyncio.timeout(SEND_SECONDS):
                        await send({"type": "http.response.body", "body": message, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except (TimeoutError, RefusedError):
            return  # the server closes the connection; if the browser comes again, it gets the reason

    async def _messages(self) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        sent: dict[str, str] = {}
        last = loop.time()
        yield b"retry: 2000\n\n"
        while True:
            version = self._hub.version
            page = await self._pages.page(self._ref)
            if page is None:
                yield b"event: gone\ndata: {}\n\n"
                return
            fresh = [one for one in page.fragments if sent.get(one.name) != one.digest]
            if fresh:
                for one in fresh:  # an event for each: a slow browser holds one of them only
                    for part in _slices(b"event: fragments\ndata: [", one.wire, b"]\n\n"):
                        yield part
                sent = {one.name: one.digest for one in page.fragments}
                last = loop.time()
            elif loop.time() - last >= QUIET_SECONDS:
                yield b": quiet\n\n"
                last = loop.time()
            await asyncio.sleep(FRAME_SECONDS)
            await self._hub.wait_newer(version, TICK_SECONDS)


def _slices(*parts: bytes) -> Iterator[bytes]:
    """Yield the parts in slices, so that the server never has a whole drawing in the buffer of each connection."""
    for part in parts:
        for begin in range(0, len(part), SLICE_BYTES):
            yield part[begin : begin + SLICE_BYTES]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
