"""How a request comes in and what keeps it out: too many at once, too large, not the protocol's. Used by `app` and
`fast_path_protocol`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)
SHOWN_ERRORS = 5


class RequestError(Exception):
    """The request itself cannot be served: a status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ConcurrencyLimit:
    """Lets `most` requests in at once. kube-scheduler has one or two under way; whoever comes in a crowd is told so at
    once, since an answer after the scheduler's time limit would be work for nobody, and late for all the others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside = 0

    def come(self) -> None:
        """Raises RequestError; whoever was let in must `go`."""
        if self._inside >= self._most:
            raise RequestError(503, f"{self._inside} requests are under way, as many as allowed (PODIUM_MAX_REQUESTS)")
        self._inside += 1

    def go(self) -> None:
        self._inside -= 1

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        self.come()
        try:
            # those that came in the same moment are counted before the first of them is worked on
            await asyncio.sleep(0)
            yield
        finally:
            self.go()


async def read(request: Request, limit: int) -> bytes:
    """The whole body; 413 as soon as it is over `limit` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large(limit)
    return bytes(body)


def too_large(limit: int) -> RequestError:
    return RequestError(413, f"the request is larger than {limit} bytes (PODIUM_BODY_LIMIT)")


def parse(body: bytes, model: type[M]) -> M:
    """400 with the fields that are wrong."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        found = [f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in error.errors()]
        more = f"; and {len(found) - SHOWN_ERRORS} more" if len(found) > SHOWN_ERRORS else ""
        raise RequestError(400, "; ".join(found[:SHOWN_ERRORS]) + more) from error
