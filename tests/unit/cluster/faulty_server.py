"""A model of an API server behind a faulty transport, on virtual time.

`Store` is the truth: the objects and every state that ever existed. `FaultyTransport` takes the place of the HTTP
session of `Api`: it answers requests from the store, and breaks the answers in the way of the current fault.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
from kubernetes.aio.client import Configuration

BOOKMARK_SECONDS = 60.0
FIRST = 10  # version of the empty store; each change adds 1, so a version is a place in the log
FAILING = ("ends", "gone", "gone in stream", "throttled", "broken", "refused", "silent", "garbage", "endless")
DISTURBING = ("reorder", "duplicate", "cut", "delay", "lossy", "old", "cached", "expired pages")
FAULTS = ("none", *FAILING, *DISTURBING)
GARBAGE = (
    b"<html>Bad gateway</html>",
    b"[]",
    b"null",
    b"7",
    b'{"metadata": {}}',
    b'{"metadata": {"resourceVersion": 7}, "items": []}',
    b'{"metadata": {"resourceVersion": "7"}}',
    b'{"metadata": {"resourceVersion": "7"}, "items": {}}',
    b'{"metadata": {"resourceVersion": "7"}, "items": [null]}',
    b'{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"namespace": "a"}}]}',
    b'{"metadata": {"resourceVersion": "7", "continue": 1}, "items": []}',
    b'{"kind": "Status", "status": "Failure", "code": 200}',
    b'{"type": "ADDED"}',
    b'{"type": "ADDED", "object": 1}',
    b'{"type": "MODIFIED", "object": {"metadata": {"name": 5}}}',
    b'{"type": "WHAT", "object": {"metadata": {"name": "a", "resourceVersion": "99999"}}}',
    b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": null}}}',
    b'{"type": "ERROR", "object": {"code": "many", "details": []}}',
    b'{"type": "ERROR", "object": []}',
    b"[" * 100_000,
    b"\xff\xfe\x00",
    b"9" * 10_000,
)


class Store:
    """The objects of one kind by name, their versions, and every state that ever existed."""

    def __init__(self) -> None:
        self.version = FIRST
        self.objects: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[int, str, dict[str, Any]]] = []
        self.existed: set[tuple[str, str, int]] = set()
        self.compacted = FIRST
        self.changed = asyncio.Event()

    def put(self, name: str, value: int) -> None:
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        about = {"name": name, "namespace": "default", "resourceVersion": str(self.version)}
        self.objects[name] = {"metadata": about, "value": value}
        self.existed.add((name, str(self.version), value))
        self._log(kind, self.objects[name])

    def delete(self, name: str) -> None:
        self.version += 1
        gone = self.objects.pop(name)
        self._log("DELETED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}})

    def _log(self, kind: str, payload: dict[str, Any]) -> None:
        self.log.append((self.version, kind, payload))
        self.changed.set()
        self.changed = asyncio.Event()

    def compact(self) -> None:
        self.compacted = self.version

    def at(self, version: int) -> list[dict[str, Any]]:
        """Return the objects as they were at a version."""
        objects: dict[str, dict[str, Any]] = {}
        for _, kind, payload in self.log[: version - FIRST]:
            name = payload["metadata"]["name"]
            objects.pop(name, None)
            if kind != "DELETED":
                objects[name] = payload
        return [objects[name] for name in sorted(objects)]


@dataclass
class Response:
    """The part of aiohttp's response that the client uses."""

    status: int
    chunks: AsyncGenerator[bytes, None]
    deadline: float
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> Response:
        return self

    @property
    def response(self) -> Response:
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        while True:
            async with asyncio.timeout_at(self.deadline):
                try:
                    chunk = await anext(self.chunks)
                except StopAsyncIteration:
                    return
            yield chunk

    def release(self) -> None:
        pass


class FaultyTransport:
    """Answers requests with the current `fault`; `requests` are the times of all requests."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self.store, self.chance = store, chance
        self.fault = "none"
        self.requests: list[float] = []
        self.old = FIRST  # version of the server that is behind
        self.rest_client = self
        self.configuration = Configuration()

    async def param_serialize(self, method: str, path: str, **how: Any) -> tuple[str, str, Any, None, None]:
        query = "&".join(f"{key}={value}" for key, value in how["query_params"])
        return method, f"{path}?{query}", how["header_params"], None, None

    async def request(self, method: str, url: str, *, _request_timeout: Any, **_: Any) -> Response:
        now = asyncio.get_running_loop().time()
        self.requests.append(now)
        assert len(self.requests) < 100_000, "requests without a pause"
        deadline = now + _request_timeout.total
        query = {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
        await asyncio.sleep(0.01)
        failure = await self._failure("watch" in query, deadline)
        if failure is not None:
            return failure
        if "watch" in query:
            return self._watch(query, deadline)
        return self._list(query, deadline)

    async def _failure(self, watches: bool, deadline: float) -> Response | None:
        match self.fault:
            case "ends" if watches:
                return Response(200, _body(), deadline)
            case "gone" if watches:
                return _status(410, "Expired", deadline)
            case "gone in stream" if watches:
                return Response(200, _body(_line("ERROR", {"code": 410, "reason": "Expired"})), deadline)
            case "throttled":
                after = self.chance.choice(["1", "7", "3600", "-1", "soon", "Thu, 01 Jan 2099 00:00:00 GMT"])
                return _status(429, "TooManyRequests", deadline, {"Retry-After": after})
            case "broken":
                return _status(self.chance.choice([500, 502, 503, 504, 403]), "InternalError", deadline)
            case "refused":
                raise self.chance.choice([aiohttp.ClientConnectionError("refused"), ConnectionResetError("reset")])
            case "silent":
                if self.chance.random() < 0.5:
                    await asyncio.sleep(1e6)
                return Response(200, _silence(), deadline)
            case "garbage":
                return Response(200, _body(self.chance.choice(GARBAGE) + b"\n"), deadline)
            case "endless":
                status = self.chance.choice([200, 200, 500])
                return Response(status, _endless(self.chance.choice([b"x", b"[", b" "])), deadline)
        return None

    def _list(self, query: dict[str, str], deadline: float) -> Response:
        version, floor = self.store.version, int(query.get("resourceVersion", "0"))
        if self.fault == "old" and floor > self.old:
            return _status(504, "Timeout", deadline, message=f"Too large resource version: {floor}")
        if self.fault == "cached":
            version = self.old
        begin = 0
        if "continue" in query:
            version, begin = map(int, query["continue"].split("."))
            if self.fault == "expired pages" or version < self.store.compacted:
                return _status(410, "Expired", deadline)
        objects, end = self.store.at(version), begin + int(query["limit"])
        more = {"continue": f"{version}.{end}"} if end < len(objects) else {}
        answer = {"metadata": {"resourceVersion": str(version)} | more, "items": objects[begin:end]}
        return Response(200, _body(json.dumps(answer).encode()), deadline)

    def _watch(self, query: dict[str, str], deadline: float) -> Response:
        version = int(query["resourceVersion"])
        if version < self.store.compacted:
            return _status(410, "Expired", deadline)
        if self.fault in ("old", "cached"):
            return Response(200, self._old_stream(version), deadline)
        ends = asyncio.get_running_loop().time() + float(query["timeoutSeconds"])
        return Response(200, self._stream(version, ends), deadline)

    async def _stream(self, version: int, ends: float) -> AsyncGenerator[bytes, None]:
        clock, fault = asyncio.get_running_loop().time, self.fault
        while True:
            changed = self.store.changed
            batch = self.store.log[version - FIRST :] if version >= FIRST else []
            if fault == "reorder" and len(batch) < 3:
                batch = []  # gather some
            version = batch[-1][0] if batch else version
            lines = [_line(kind, payload) for _, kind, payload in batch]
            async for chunk in self._disturbed(lines, fault):
                yield chunk
            if self.fault != fault and self.fault in (*FAILING, "old", "cached"):
                raise aiohttp.ClientPayloadError("the connection was reset")
            if clock() >= ends:
                return
            try:
                async with asyncio.timeout_at(min(ends, clock() + BOOKMARK_SECONDS)):
                    await changed.wait()
            except TimeoutError:
                if version >= self.store.version:
                    yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    async def _disturbed(self, lines: list[bytes], fault: str) -> AsyncGenerator[bytes, None]:
        cut = -1
        if fault == "reorder" and lines:
            self.chance.shuffle(lines)
            cut = self.chance.randrange(2 * len(lines))  # late events may be lost
        for number, line in enumerate(lines):
            if number == cut:
                raise aiohttp.ClientPayloadError("the connection was reset")
            if fault == "lossy" and self.chance.random() < 0.3:
                continue
            if fault == self.fault == "delay":
                await asyncio.sleep(self.chance.uniform(0.0, 20.0))
            if fault == "duplicate":
                yield line
            if fault == "cut" and self.chance.random() < 0.3:
                yield line[: self.chance.randrange(len(line))]
                raise aiohttp.ClientPayloadError("the connection was reset")
            half = self.chance.randrange(len(line))
            yield line[:half]
            yield line[half:]

    async def _old_stream(self, version: int) -> AsyncGenerator[bytes, None]:
        """The server that is behind sends what the client does not have, or old events, and an old bookmark."""
        until = self.old
        kept = self.store.log[self.store.compacted - FIRST : until - FIRST]
        new = [entry for entry in kept if entry[0] > version]
        for _, kind, payload in new or (kept[-3:] if self.chance.random() < 0.5 else []):
            yield _line(kind, payload)
        await asyncio.sleep(self.chance.uniform(0.0, 30.0))
        yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(until)}})


def _line(kind: str, payload: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": payload}).encode() + b"\n"


def _status(
    code: int, reason: str, deadline: float, headers: dict[str, str] | None = None, message: str = "no"
) -> Response:
    answer = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return Response(code, _body(json.dumps(answer).encode()), deadline, headers or {})


async def _body(*chunks: bytes) -> AsyncGenerator[bytes, None]:
    for chunk in chunks:
        yield chunk


async def _silence() -> AsyncGenerator[bytes, None]:
    await asyncio.sleep(1e6)
    yield b""


async def _endless(byte: bytes) -> AsyncGenerator[bytes, None]:
    while True:
        yield byte * 4096
