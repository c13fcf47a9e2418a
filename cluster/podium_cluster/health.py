"""The pages /healthz, /readyz and /metrics of a component."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, generate_latest

Check = Callable[[], str | None]
READ_SECONDS = 5.0


def _page(path: str, alive: Check, ready: Check, registry: CollectorRegistry) -> tuple[int, str, bytes]:
    if path == "/metrics":
        return 200, "text/plain; version=0.0.4; charset=utf-8", generate_latest(registry)
    checks = {"/healthz": alive, "/readyz": ready}
    if path not in checks:
        return 404, "text/plain", b"not found; the pages are /healthz, /readyz and /metrics\n"
    problem = checks[path]()
    return (503, "text/plain", problem.encode() + b"\n") if problem else (200, "text/plain", b"ok\n")


@asynccontextmanager
async def serve(host: str, port: int, *, alive: Check, ready: Check, registry: CollectorRegistry) -> AsyncIterator[int]:
    """Serve until the block ends, and yield the port.

    A check returns None or a sentence about the problem.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), READ_SECONDS)
            words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
            path = words[1].split("?")[0] if len(words) == 3 else "/"
            status, kind, body = _page(path, alive, ready, registry)
            start = f"HTTP/1.1 {status} {'OK' if status == 200 else 'NO'}\r\nContent-Type: {kind}\r\n"
            # head and body in one write, because two packets would take 40 ms (Nagle's algorithm)
            writer.write(f"{start}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            await asyncio.wait_for(writer.drain(), READ_SECONDS)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the client closed the connection or did not send HTTP
        finally:
            writer.close()

    server = await asyncio.start_server(handle, host, port)
    async with server:
        yield server.sockets[0].getsockname()[1]
