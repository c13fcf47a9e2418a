"""kopf over a sick API server: requests are spaced, invalid responses look like lost connections, and kopf restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import kopf
import pytest
import virtual_time
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from podium_operator import main
from podium_operator.jobs import handlers
from podium_operator.jobs.connection import CheckedContent, RequestSpacing, login
from podium_operator.settings import OperatorSettings

EVENT = {"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "7"}}}
EXPIRED = {"type": "ERROR", "object": {"code": 410}}


class Body:
    """A body in chunks; it stands in for a request and a response, too."""

    status, method = 200, "GET"

    def __init__(self, *chunks: bytes, path: str = "/jobs") -> None:
        self.chunks, self.content, self.url = chunks, self, URL(f"http://server{path}")

    async def iter_any(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk


def test_requests_of_one_path_are_spaced() -> None:
    async def play() -> list[tuple[float, str]]:
        spacing, sent = RequestSpacing(), []

        async def handler(request: Any) -> Any:
            sent.append((asyncio.get_running_loop().time(), request.url.path))
            return Body()

        async def client(path: str) -> None:
            for _ in range(5):
                await spacing(cast(Any, Body(path=path)), handler)

        await asyncio.gather(client("/jobs"), client("/claims"))
        await asyncio.sleep(60)
        await client("/jobs")
        return sent

    sent = virtual_time.run(play())
    assert [at for at, path in sent if path == "/claims"] == [0, 0, 1, 2, 3]
    assert [at for at, path in sent if path == "/jobs"] == [0, 0, 1, 2, 3, 63, 63, 64, 65, 66]


def test_kopf_writes_only_while_its_operator_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kopf itself sets annotations; an operator that was stopped and continues must not."""
    seen: list[str] = []
    writes = ("PATCH", "POST", "PUT", "DELETE")
    leads = False

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.method)
        return web.json_response({})

    async def play() -> None:
        nonlocal leads
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        async with TestServer(app) as server:
            about = {"name": "c", "cluster": {"server": str(server.make_url("")).rstrip("/")}}
            context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
            config = {"clusters": [about], "users": [{"name": "c", "user": {}}], "contexts": [context]}
            (tmp_path / "config").write_text(yaml.safe_dump({"kind": "Config", "current-context": "c", **config}))
            monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
            monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
            made = await login(lambda: leads, settings=handlers.settings())
            assert made is not None
            async with made.aiohttp_session as session:
                await session.get(f"{made.server}/jobs")
                for method in writes:
                    with pytest.raises(aiohttp.ClientConnectionError, match="this operator does not lead"):
                        await session.request(method, f"{made.server}/jobs")
                leads = True
                for method in writes:
                    await session.request(method, f"{made.server}/jobs")

    asyncio.run(play())
    assert seen == ["GET", *writes]


def lines(*chunks: bytes) -> list[bytes]:
    async def play() -> list[bytes]:
        return [line async for line in CheckedContent(cast(Any, Body(*chunks)), "GET /jobs").iter_chunked(2**20)]

    return asyncio.run(play())


@pytest.mark.parametrize("event", [EVENT, EXPIRED])
def test_valid_events_and_an_expired_version_reach_kopf(event: Any) -> None:
    line = json.dumps(event).encode() + b"\n"
    assert lines(line[:9], line[9:] + line) == [line, line]


@pytest.mark.parametrize("line", [b"<html>", b"[]", b'{"type": "ADDED"}', b'{"type": "ERROR", "object": {"code": 5}}'])
def test_an_invalid_event_is_a_lost_connection(line: bytes) -> None:
    with pytest.raises(aiohttp.ClientPayloadError):
        lines(line + b"\n")


@pytest.mark.parametrize("body", [b"<html>", b"7", b"[" * 100_000])
def test_an_invalid_list_is_a_lost_connection(body: bytes) -> None:
    with pytest.raises(aiohttp.ClientPayloadError):
        asyncio.run(CheckedContent(cast(Any, Body(body)), "GET /jobs").read())


def test_kopf_starts_again_until_it_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Exception | None] = [RuntimeError("forbidden"), ValueError("no JSON"), None]

    async def operator(**_: Any) -> None:
        end = ends.pop(0)
        if end is not None:
            raise end

    monkeypatch.setattr(kopf, "operator", operator)

    async def play() -> None:
        await main._kopf(kopf.OperatorRegistry(), OperatorSettings(), asyncio.Event())

    virtual_time.run(play())
    assert ends == []
