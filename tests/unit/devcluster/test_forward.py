"""The forwarder copies both directions, keeps half-closed connections open, and survives without a server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from podium_devcluster.runtime import forward


def through(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None, sent: bytes
) -> bytes:
    """Send through the forwarder to a server with `handler` (None: no server) and return the answer."""

    async def scenario() -> bytes:
        port = 1
        server = None
        if handler is not None:
            server = await asyncio.start_server(handler, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
        listener = socket.create_server(("127.0.0.1", 0))
        address = listener.getsockname()
        task = asyncio.create_task(forward.serve(listener, "127.0.0.1", port))
        try:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(sent)
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), timeout=300)
            writer.close()
            return answer
        finally:
            task.cancel()
            if server is not None:
                server.close()

    return asyncio.run(scenario())


async def late_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers only after the client has closed its side, as `kubectl exec` with standard input does."""
    everything = await reader.read()
    writer.write(everything[::-1])
    await writer.drain()
    writer.close()


async def ignored(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_both_directions_of_a_half_closed_connection() -> None:
    sent = bytes(range(256)) * 4000
    assert through(late_echo, sent) == sent[::-1]


def test_a_server_that_closes_the_connection() -> None:
    assert through(ignored, b"") == b""


def test_without_a_server_the_connection_is_closed() -> None:
    assert through(None, b"") == b""
