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


class _BoundedServer(web.Server):
    """aiohttp's server with a limit for the number and the duration of connections."""

    def __call__(self) -> web.RequestHandler:
        """Return the protocol of a new connection."""
        for oldest in self.connections[: 1 - MAX_CONNECTIONS]:
            _abort(oldest)
        connection = super().__call__()
        asyncio.get_running_loop().call_later(CONNECTION_SECONDS, _abort, connection)
        return connection


def _abort(connection: web.RequestHandler) -> None:
    """Close the connection, also if the client does not read its response."""
    if connection.transport is not None:
        connection.transport.abort()


@asynccontextmanager
async def serve(host: str, port: int, *, alive: Check, ready: Check, registry: CollectorRegistry) -> AsyncIterator[int]:
    """Serve until the block ends, and yield the port.

    A check returns None or a sentence about the problem.
    """
    checks = {"/healthz": alive, "/readyz": ready}

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path == "/metrics":
            response = web.Response(body=generate_latest(registry))
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
