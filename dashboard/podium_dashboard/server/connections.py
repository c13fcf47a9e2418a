"""uvicorn's HTTP protocol with limits for connections, the size and the time of a request.

A browser that reads a stream too slowly is disconnected here, because uvicorn waits for it without a limit.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_CONNECTIONS = 400  # a further one closes the connection that has been idle for longest
MAX_REQUEST_BYTES = 1 << 15  # head and body
CHECK_SECONDS = 15.0  # a connection without progress for one to two such periods is closed


class BoundedProtocol(HttpToolsProtocol):
    """One connection; it is closed when it exceeds a limit."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and close an idle one if there are too many."""
        super().connection_made(transport)
        self._answering = False
        self._since = self.loop.time()
        self._received = 0
        self._stuck: int | None = None  # bytes that could not be sent at the last check
        self._check = self.loop.call_later(CHECK_SECONDS, self._look)
        others = [cast(BoundedProtocol, one) for one in self.connections if one is not self]
        if len(others) >= MAX_CONNECTIONS:
            idle = [one for one in others if not one._answering]
            min(idle, key=lambda one: one._since, default=self)._abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the checks."""
        self._check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; its head and body together are limited."""
        self._received += len(data)
        if self._received > MAX_REQUEST_BYTES:
            self._abort()
            return
        super().data_received(data)

    def on_message_complete(self) -> None:
        """Note that the response begins."""
        self._answering, self._received = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note that the connection waits for a request again."""
        self._answering, self._since = False, self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        waiting: int = self.transport.get_write_buffer_size()
        no_request = not self._answering and self.loop.time() - self._since >= CHECK_SECONDS
        if no_request or (waiting > 0 and waiting == self._stuck):
            self._abort()
            return
        self._stuck = waiting
        self._check = self.loop.call_later(CHECK_SECONDS, self._look)

    def _abort(self) -> None:
        self._check.cancel()
        transport: Any = self.transport
        transport.abort()
