"""The pages /healthz, /readyz and /metrics of a component.

aiohttp serves them, because the Kubernetes client installs it anyway. It runs in the component's event loop, so the
liveness probe fails while the loop is stuck.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

Check = Callable[[], str | None]
CONNECTION_SECONDS = 5.0  # of one connection, which serves one request
MAX_CONNECTIONS = 100  # of one component; a further one closes the oldest, because a probe takes milliseconds
MAX_PER_PEER = 20  # of one address: a pod with many connections closes its own and not the kubelet's
METRICS_SECONDS = 1.0  # the metrics are collected at most once in this time, however often they are read


class _BoundedServer(web.Server):
    """aiohttp's server with a limit for the number and the duration of connections."""

    def __call__(self) -> web.RequestHandler:
        """Return the protocol of a new connection."""
        for oldest in self.connections[: 1 - MAX_CONNECTIONS]:
            _abort(oldest)
        connection = super().__call__()
        asyncio.get_running_loop().call_later(CONNECTION_SECONDS, _abort, connection)
        return connection

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Close the oldest connection of the same address if it has too many."""
        peer = _address(transport)
        same = [one for one in self.connections if one.transport is not None and _address(one.transport) == peer]
        for oldest in same[: max(0, len(same) - MAX_PER_PEER + 1)]:
            _abort(oldest)
        super().connection_made(handler, transport)


def _address(transport: asyncio.BaseTransport) -> str:
    name = transport.get_extra_info("peername")
    return str(name[0]) if name else ""


class _Metrics:
    """The text of the metrics, which many requests share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._text, self._until = b"", 0.0

    def text(self) -> bytes:
        """Return the metrics, at most `METRICS_SECONDS` old."""
        now = asyncio.get_running_loop().time()
        if now >= self._until:
            self._text, self._until = generate_latest(self._registry), now + METRICS_SECONDS
        return self._text


def _abort(connection: web.RequestHandler) -> None:
    """Close the connection, also if the client does not read its response."""
    if connection.transport is not None:
        connection.transport.abort()


@asynccontextmanager
async def serve(host: str, port: int, *, alive: Check, ready: Check, registry: CollectorRegistry) -> AsyncIterator[int]:
    """Serve until the block ends, and yield the port.

    A check returns None or a sentence about the problem.
    """
    checks, metrics = {"/healthz": alive, "/readyz": ready}, _Metrics(registry)

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path == "/metrics":
            response = web.Response(body=metrics.text())
            response.headers["Content-Type"] = "text/plain; version=0.0.4; charset=utf-8"
        elif request.path in checks:
            problem = checks[request.path]()
            response = web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)
        else:
            response = web.Response(text="not found; the pages are /healthz, /readyz and /metrics\n", status=404)
        response.force_close()
        return response

    pages = _BoundedServer(answer, access_log=None)
    server = await asyncio.get_running_loop().create_server(pages, host, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await pages.shutdown(CONNECTION_SECONDS)
