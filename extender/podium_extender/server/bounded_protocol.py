"""uvicorn's HTTP protocol with limits for connections, for the time of a request, and for the size of its head.

uvicorn waits for a request without a limit and keeps a head of any size. kube-scheduler keeps one or two connections
open and sends a whole request at once, so the limits never affect it.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_CONNECTIONS = 100  # a further one closes the connection that has been idle for longest
REQUEST_SECONDS = 30.0  # from the connection, or the first byte of a request, to its last byte
RESPONSE_SECONDS = 30.0  # from the last byte of a request until its client has read the response
MAX_HEAD_BYTES = 2**16


class BoundedProtocol(HttpToolsProtocol):
    """One connection; it is closed when it exceeds a limit."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request, and close an idle connection if there are too many."""
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._idle = True
        self._served = False
        self._since = self.loop.time()
        self._receiving = False
        self._head: int | None = 0  # bytes of the head so far, None while a body is received
        self._fields = 0  # bytes of header and trailer fields
        self._limit(REQUEST_SECONDS)
        others = [cast(BoundedProtocol, one) for one in self.connections if one is not self]
        if len(others) >= MAX_CONNECTIONS:
            idle = [one for one in others if one._idle]
            # first those that have never sent a request
            victim = min(idle, key=lambda one: (one._served, one._since), default=self)
            victim._abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > MAX_HEAD_BYTES:
                self._abort()

    def on_message_begin(self) -> None:
        """Start the time limit of a request."""
        super().on_message_begin()
        self._idle, self._receiving, self._head, self._fields = False, True, 0, 0
        self._limit(REQUEST_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header or, after a chunked body, a trailer."""
        self._fields += len(name) + len(value)
        if self._fields <= MAX_HEAD_BYTES:
            super().on_header(name, value)
        else:
            self._abort()

    def on_headers_complete(self) -> None:
        """Stop counting the bytes of the head."""
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Start the time limit of the response, and count the next head."""
        self._receiving, self._head = False, 0
        self._idle = self.cycle.response_complete  # a request that was refused early has its response already
        self._limit(RESPONSE_SECONDS)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Stop the time limit unless the client has yet to read the response, or to end a refused request."""
        if not self._receiving and self.transport.get_write_buffer_size() == 0:
            self._stop()
        self._idle, self._served, self._since = not self._receiving, True, self.loop.time()
        super().on_response_complete()

    def _limit(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self._expire)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """Close the connection, unless it only waits for the next request and its client has read everything."""
        if not (self._idle and self._served and self.transport.get_write_buffer_size() == 0):
            self._abort()

    def _abort(self) -> None:
        self._stop()
        transport: Any = self.transport
        transport.abort()
