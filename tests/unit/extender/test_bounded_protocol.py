"""Clients that are slow, idle, deaf or too many lose their connection to the extender, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import uvicorn

from podium_extender.server import bounded_protocol
from podium_extender.server.bounded_protocol import BoundedProtocol

LARGE = 2**24  # bytes, more than the buffers of a connection
HEAD = b"POST /filter HTTP/1.1\r\nHost: extender\r\n"
Story = Callable[[int], Awaitable[None]]


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_protocol, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(bounded_protocol, "RESPONSE_SECONDS", 0.3)
    monkeypatch.setattr(bounded_protocol, "MAX_CONNECTIONS", 3)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read a body of at most 1 KiB and answer with `LARGE` bytes for the path /large."""
    size, more = 0, True
    while more and size < 1024:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    body = b"x" * LARGE if scope["path"] == "/large" else b"ok"
    length = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": body})


def run(story: Story) -> None:
    async def main() -> None:
        server = uvicorn.Server(uvicorn.Config(app, port=0, http=BoundedProtocol, log_config=None, lifespan="off"))
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup()
        try:
            async with asyncio.timeout(60):
                await story(server.servers[0].sockets[0].getsockname()[1])
        finally:
            await server.shutdown()

    asyncio.run(main())


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def ask(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    connection[1].write(HEAD + b"Content-Length: 2\r\n\r\n{}")
    assert (await connection[0].readuntil(b"ok")).startswith(b"HTTP/1.1 200")


async def ends(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    """Return what arrives until the server closes the connection."""
    parts = []
    try:
        while part := await connection[0].read(2**16):
            parts.append(part)
    except ConnectionError:
        pass
    connection[1].close()
    return b"".join(parts)


async def drip(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], data: Iterator[bytes]) -> bytes:
    """Send a byte every 20 ms until the server closes the connection."""
    closed = asyncio.create_task(ends(connection))
    for byte in data:
        if closed.done():
            break
        connection[1].write(byte)
        await asyncio.sleep(0.02)
    return await closed


def endless(start: bytes, then: bytes) -> Iterator[bytes]:
    yield start
    while True:
        yield then


@pytest.mark.parametrize(
    ("start", "then"),
    [
        (b"", b""),
        (b"POST /fil", b"t"),
        (HEAD, b"X: 1\r\n"),
        (HEAD + b"Content-Length: 9999999\r\n\r\n", b"x"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (HEAD + b"Content-Length: 9999999\r\n\r\n" + b"x" * 2000, b"x"),
    ],
    ids=["silent", "path", "headers", "body", "chunks", "body after the response"],
)
def test_a_request_that_does_not_end_is_cut_off(start: bytes, then: bytes) -> None:
    async def story(port: int) -> None:
        await drip(await connect(port), endless(start, then))
        connection = await connect(port)
        await ask(connection)
        connection[1].close()

    run(story)


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"


@pytest.mark.parametrize(
    "data",
    [HEAD + b"X: " + b"x" * 2**20, HEAD + b"X: 1\r\n" * 2**17, CHUNKED + b"X: 1\r\n" * 2**17],
    ids=["one header", "many headers", "trailers"],
)
def test_a_head_that_is_too_large_is_cut_off(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_protocol, "REQUEST_SECONDS", 60.0)

    async def story(port: int) -> None:
        connection = await connect(port)
        connection[1].write(data)
        assert not (await ends(connection)).startswith(b"HTTP/1.1 200")

    run(story)


def test_a_client_that_reads_no_response_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = asyncio.Event()
    lose = BoundedProtocol.connection_lost

    def connection_lost(self: BoundedProtocol, error: Exception | None) -> None:
        lose(self, error)
        closed.set()

    monkeypatch.setattr(BoundedProtocol, "connection_lost", connection_lost)

    async def story(port: int) -> None:
        deaf = await asyncio.open_connection("127.0.0.1", port, limit=2**10)
        deaf[1].write(b"GET /large HTTP/1.1\r\nHost: extender\r\n\r\n")
        await deaf[1].drain()
        await closed.wait()
        assert len(await ends(deaf)) < LARGE

    run(story)


def test_a_connection_between_two_requests_stays_open() -> None:
    async def story(port: int) -> None:
        connection = await connect(port)
        for _ in range(2):
            await ask(connection)
            await asyncio.sleep(0.5)
        connection[1].close()

    run(story)


def test_many_connections_do_not_displace_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_protocol, "REQUEST_SECONDS", 60.0)

    async def story(port: int) -> None:
        scheduler = await connect(port)
        await ask(scheduler)
        idle = [await connect(port) for _ in range(10)]
        for connection in idle[:8]:
            await ends(connection)
        await ask(scheduler)
        for _, writer in (scheduler, *idle):
            writer.close()

    run(story)


def test_a_new_connection_is_closed_while_all_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_protocol, "REQUEST_SECONDS", 60.0)

    async def story(port: int) -> None:
        busy = [await connect(port) for _ in range(3)]
        for _, writer in busy:
            writer.write(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{")
        for reader, _ in busy:
            await reader.readuntil(b"100 Continue\r\n\r\n")
        assert await ends(await connect(port)) == b""
        for reader, writer in busy:
            writer.write(b"}")
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            writer.close()

    run(story)
