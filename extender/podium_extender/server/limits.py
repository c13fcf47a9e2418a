"""Limits of requests: how many at a time, and how large."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from podium_extender.verbs.wire import RequestError


class ConcurrencyLimit:
    """A limit of concurrent requests.

    kube-scheduler sends one or two at a time. More than `limit` are refused at once: their responses would come after
    the scheduler's time limit and would delay all others. A request counts before its body is read, so that memory is
    used for a limited number of bodies, however slow the clients are.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._active = 0

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Count a request during the block; raises RequestError at the limit."""
        if self._active >= self._limit:
            raise RequestError(
                503, f"{self._active} requests are being processed, as many as allowed (PODIUM_MAX_REQUESTS)"
            )
        self._active += 1
        try:
            # requests that arrived at the same moment are counted before the first of them is processed
            await asyncio.sleep(0)
            yield
        finally:
            self._active -= 1


async def read(request: Request, limit: int) -> bytes:
    """Read the whole body; raise RequestError (413) as soon as it exceeds `limit` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise RequestError(413, f"the request is larger than {limit} bytes (PODIUM_BODY_LIMIT)")
    return bytes(body)
