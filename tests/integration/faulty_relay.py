"""An HTTP relay to the API server with faults: cut off, refused, throttled, late, repeated, out of order, garbage.

The component connects by plain HTTP, so the relay reads requests and the events of watches. It presents the
administrator's certificate to the server. The faults follow a seed, and every request is noted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "content-encoding", "host", "authorization"}
REFUSALS = {"throttled": 429, "broken": 500, "unavailable": 503, "expired": 410}
# before the server sees a request / of its response / of the events of a watch
REQUEST_FAULTS = ("refused", "silent", *REFUSALS)
ANSWER_FAULTS = ("lost answer", "garbage")
EVENT_FAULTS = ("delay", "duplicate", "reorder", "cut", "garbage line")
SILENCE_SECONDS = 3.0
LONGEST_DELAY = 0.5
GARBAGE = (b"<html>Bad gateway</html>", b"[]", b'{"metadata": {}}', b'{"type": "MODIFIED", "object": 1}', b"\xff\xfe")


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it came, and which list, watch or object it asked for, and by which client."""

    at: float
    method: str
    what: str


class FaultyRelay:
    """A relay from a loopback port to the API server of `kubeconfig`; `kubeconfig` of the relay is for the component.

    `rates` are probabilities of faults by name. While `is_cut` nothing passes in either direction, and open connections
    stay open, as in a network that drops all packets.
    """

    def __init__(self, kubeconfig: Path, folder: Path, seed: int = 0) -> None:
        self.rates: dict[str, float] = {}
        self.requests: list[Request] = []
        self.injected: Counter[str] = Counter()
        self.is_cut = False
        self.spared = ""  # part of the paths that have no faults
        self._chance = random.Random(seed)
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server = cluster["server"]
        self._trust = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]))
        for name in ("certificate", "key"):
            path = folder / f"client.{name}"
            path.touch(mode=0o600)
            path.write_text(_decoded(user[f"client-{name}-data"]))
        self._trust.load_cert_chain(folder / "client.certificate", folder / "client.key")
        self._stop: asyncio.Event | None = None
        self._loop = asyncio.new_event_loop()
        started: asyncio.Future[int] = asyncio.run_coroutine_threadsafe(self._start(), self._loop)  # type: ignore[assignment]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        port = started.result(20)  # type: ignore[call-arg]
        self.kubeconfig = folder / "relay.kubeconfig"
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{port}"}
        config["users"][0]["user"] = {"token": "unused"}
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def cut(self) -> None:
        """Let nothing pass any more."""
        self.is_cut = True

    def fail_all(self, *names: str) -> None:
        """Let every request fail, in one of these ways with equal chance."""
        before = [name for name in REQUEST_FAULTS if name in names]
        after = {name: 1.0 for name in (*ANSWER_FAULTS, *EVENT_FAULTS) if name in names}
        ways = len(before) + bool(after)
        self.rates = after | {name: 1.0 / (ways - number) for number, name in enumerate(before)}
        self.hang_up()

    def restore(self) -> None:
        """Let everything pass again; requests that came meanwhile are lost."""
        self.is_cut = False

    def hang_up(self) -> None:
        """Break all open connections, so that every client has to send its requests again."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def _abort_all(self) -> None:
        for connection in self._server_side.connections:
            if connection.transport is not None:
                connection.transport.abort()

    def since(self, at: float) -> list[Request]:
        """Return the requests since a time of the monotonic clock."""
        return [request for request in list(self.requests) if request.at >= at]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> int:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._trust, limit=0), auto_decompress=False
        )
        self._server_side = web.Server(self._answer, handler_cancellation=True)
        self._runner = web.ServerRunner(self._server_side, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    async def _end(self) -> None:
        self.is_cut = False
        await self._session.close()
        await self._runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _happens(self, request: web.BaseRequest, *names: str) -> str:
        """Return a fault that happens now, or an empty string."""
        for name in () if self.spared and self.spared in request.path else names:
            if self._chance.random() < self.rates.get(name, 0.0):
                self.injected[name] += 1
                return name
        return ""

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(Request(time.monotonic(), request.method, what_of(request)))
        if self.is_cut:
            return await self._silence(request)
        fault = self._happens(request, *REQUEST_FAULTS)
        if fault == "refused":
            return _hang_up(request)
        if fault == "silent":
            return await self._silence(request, SILENCE_SECONDS)
        if fault:
            return _refusal(REFUSALS[fault])
        headers = {key: value for key, value in request.headers.items() if key.lower() not in HOP_HEADERS}
        headers["Accept-Encoding"] = "identity"
        url, body = self._server + request.raw_path, await request.read()
        try:
            async with self._session.request(
                request.method, URL(url, encoded=True), headers=headers, data=body or None,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            ) as response:  # fmt: skip
                if self.is_cut:
                    return await self._silence(request)
                return await self._pass_on(request, response)
        except aiohttp.ClientError:
            return _hang_up(request)

    async def _pass_on(self, request: web.BaseRequest, response: aiohttp.ClientResponse) -> web.StreamResponse:
        is_watch = "watch=true" in request.raw_path and response.status == 200
        fault = "" if is_watch else self._happens(request, *ANSWER_FAULTS)
        if fault == "lost answer":
            return _hang_up(request)
        if fault == "garbage":
            return web.Response(body=self._chance.choice(GARBAGE))
        answer = web.StreamResponse(status=response.status)
        for key, value in response.headers.items():
            if key.lower() not in HOP_HEADERS:
                answer.headers[key] = value
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for piece in self._events(request, response) if is_watch else response.content.iter_any():
                if self.is_cut:
                    return await self._silence(request)
                if piece is None:
                    return _hang_up(request)
                await answer.write(piece)
            await answer.write_eof()
        return answer

    async def _events(self, request: web.BaseRequest, response: aiohttp.ClientResponse) -> AsyncIterator[bytes | None]:
        """Yield the lines of a watch, some of them with faults; None: the connection breaks."""
        held: bytes | None = None
        async for line in lines_of(response):
            fault = self._happens(request, *EVENT_FAULTS)
            if fault == "delay":
                await asyncio.sleep(self._chance.uniform(0, LONGEST_DELAY))
            if fault == "garbage line":
                yield self._chance.choice(GARBAGE) + b"\n"
            if fault == "cut":
                yield line[: len(line) // 2]
                yield None
                return
            if fault == "reorder" and held is None:
                held = line
                continue
            yield line
            if fault == "duplicate":
                yield line
            if held is not None:
                yield held
                held = None

    async def _silence(self, request: web.BaseRequest, seconds: float = 3600.0) -> web.StreamResponse:
        """Send nothing for `seconds`, or until the client gives up; then break the connection."""
        await asyncio.sleep(seconds)
        return _hang_up(request)


async def lines_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield whole lines; one that is still to be completed is passed on at the end."""
    pending = b""
    async for chunk in response.content.iter_any():
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if pending:
        yield pending


def what_of(request: web.BaseRequest) -> str:
    """Return which objects a request is about: path, selectors and client, but not the version."""
    query = request.query
    selectors = "&".join(query.get(name, "") for name in ("labelSelector", "fieldSelector"))
    agent = request.headers.get("User-Agent", "").split("/")[0]
    return f"{request.path}?{selectors} {agent}"


def _refusal(status: int) -> web.Response:
    answer = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "message": "a fault of the test",
    }
    answer["reason"] = "Expired" if status == 410 else "Fault"
    return web.Response(status=status, body=json.dumps(answer).encode(), content_type="application/json")


def _hang_up(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
