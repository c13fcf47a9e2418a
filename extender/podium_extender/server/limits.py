"""Limits of requests: how many at a time, how large, and in which form."""

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
    """A request that cannot be served: a status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ConcurrencyLimit:
    """A limit of concurrent requests.

    kube-scheduler sends one or two at a time. More than `limit` are refused at once: their responses would come after
    the scheduler's time limit and would delay all others.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._active = 0

    def acquire(self) -> None:
        """Count a request until `release`; raises RequestError at the limit."""
        if self._active >= self._limit:
            raise RequestError(
                503, f"{self._active} requests are being processed, as many as allowed (PODIUM_MAX_REQUESTS)"
            )
        self._active += 1

    def release(self) -> None:
        """End a request."""
        self._active -= 1

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Count a request during the block; raises RequestError at the limit."""
        self.acquire()
        try:
            # requests that arrived at the same moment are counted before the first of them is processed
            await asyncio.sleep(0)
            yield
        finally:
            self.release()


async def read(request: Request, limit: int) -> bytes:
    """Read the whole body; raise RequestError (413) as soon as it exceeds `limit` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large(limit)
    return bytes(body)


def too_large(limit: int) -> RequestError:
    """Return the error for a body of more than `limit` bytes."""
    return RequestError(413, f"the request is larger than {limit} bytes (PODIUM_BODY_LIMIT)")


def parse(body: bytes, model: type[M]) -> M:
    """Parse a body; raise RequestError (400) with the names of the invalid fields."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        errors = [f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in error.errors()]
        more = f"; and {len(errors) - SHOWN_ERRORS} more" if len(errors) > SHOWN_ERRORS else ""
        raise RequestError(400, "; ".join(errors[:SHOWN_ERRORS]) + more) from error
