"""The pages of a component over real connections, also with clients that are slow or send no HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry, Gauge

from podium_cluster.component import health

Story = Callable[[int], Awaitable[None]]
LARGE = 2**24  # bytes, more than the buffers of a connection
PROBE = b"GET %b HTTP/1.1\r\nHost: component\r\n\r\n"


def run(story: Story, *, alive: str | None = None, ready: str | None = None, text: str = "a gauge") -> None:
    """Run a story, which gets the port; `text` is a part of the metrics."""
    registry = CollectorRegistry()
    Gauge("podium_test", text, registry=registry).set(7)

    async def main() -> None:
        checks = {"alive": lambda: alive, "ready": lambda: ready}
        async with asyncio.timeout(60), health.serve("127.0.0.1", 0, **checks, registry=registry) as port:
            await story(port)

    asyncio.run(main())


async def get(port: int, path: bytes) -> tuple[int, bytes, bytes]:
    """Return status, head and body; the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PROBE % path)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), head.lower(), body


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Return what arrives until the server closes the connection."""
    parts: list[bytes] = []
    try:
        while part := await reader.read(2**16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def test_every_page_is_served() -> None:
    async def story(port: int) -> None:
        assert (await get(port, b"/healthz"))[::2] == (200, b"ok\n")
        assert (await get(port, b"/readyz?verbose"))[::2] == (503, b"waiting for pods\n")
        status, head, body = await get(port, b"/metrics")
        assert status == 200
        assert b"content-type: text/plain; version=0.0.4; charset=utf-8" in head
        assert b"\npodium_test 7.0\n" in body
        status, _, body = await get(port, b"/")
        assert (status, body) == (404, b"not found; the pages are /healthz, /readyz and /metrics\n")

    run(story, ready="waiting for pods")


def test_a_stuck_component_is_not_alive() -> None:
    async def story(port: int) -> None:
        assert (await get(port, b"/healthz"))[::2] == (503, b"no reconcile for 130 s\n")

    run(story, alive="no reconcile for 130 s")


def test_a_stuck_event_loop_answers_no_probe() -> None:
    async def story(port: int) -> None:
        probe = asyncio.create_task(asyncio.to_thread(asyncio.run, get(port, b"/healthz")))
        await asyncio.sleep(0)
        time.sleep(1)  # noqa: ASYNC251 - the event loop is stuck
        assert not probe.done()
        assert (await probe)[0] == 200

    run(story)


def test_what_is_not_http_gets_an_error() -> None:
    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01 no HTTP\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
        writer.close()
        assert (await get(port, b"/healthz"))[0] == 200

    run(story)


def test_slow_clients_are_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client sends half a request, the other does not read a response that fills its buffers."""
    monkeypatch.setattr(health, "CONNECTION_SECONDS", 0.5)

    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: ")
        deaf = await asyncio.open_connection("127.0.0.1", port, limit=2**10)
        deaf[1].write(PROBE % b"/metrics")
        await deaf[1].drain()
        assert await rest(reader) == b""
        await asyncio.sleep(1)
        assert len(await rest(deaf[0])) < LARGE
        for _, one in ((reader, writer), deaf):
            one.close()
        assert (await get(port, b"/healthz"))[0] == 200

    run(story, text="x" * LARGE)


def test_many_idle_connections_do_not_block_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_CONNECTIONS", 3)

    async def story(port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for _ in range(3):
            assert (await get(port, b"/healthz"))[0] == 200
        for reader, _ in idle[:7]:
            assert await rest(reader) == b""
        for _, writer in idle:
            writer.close()

    run(story)


def test_one_address_with_many_connections_closes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_PER_PEER", 3)

    async def story(port: int) -> None:
        kubelet = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for reader, _ in flood[:17]:
            assert await rest(reader) == b""
        kubelet[1].write(PROBE % b"/healthz")
        assert (await kubelet[0].read()).startswith(b"HTTP/1.1 200 ")
        for _, writer in (kubelet, *flood):
            writer.close()

    run(story)


def test_reading_the_metrics_often_collects_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "METRICS_SECONDS", 3600.0)
    collected = []
    generate = health.generate_latest
    monkeypatch.setattr(health, "generate_latest", lambda registry: collected.append(1) or generate(registry))

    async def story(port: int) -> None:
        for _ in range(5):
            assert b"podium_test 7.0" in (await get(port, b"/metrics"))[2]
        assert len(collected) == 1

    run(story)


@pytest.mark.parametrize(
    ("start", "then"),
    [(b"GET /healthz HTTP/1.1\r\n", b"X: 1\r\n"), (b"POST /healthz HTTP/1.1\r\nContent-Length: 999999\r\n\r\n", b"x")],
    ids=["headers", "body"],
)
def test_a_request_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch, start: bytes, then: bytes) -> None:
    monkeypatch.setattr(health, "CONNECTION_SECONDS", 0.3)

    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ends = asyncio.create_task(rest(reader))
        writer.write(start)
        while not ends.done():
            writer.write(then)
            await asyncio.sleep(0.02)
        writer.close()
        assert (await get(port, b"/healthz"))[0] == 200

    run(story)
