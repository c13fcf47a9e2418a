"""How the API client treats invalid responses, and which errors are worth a retry."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client as kube_client

import podium_cluster.access.credentials
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS


def test_an_error_page_of_a_proxy_is_an_api_error() -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<html>Please log in</html>", content_type="text/html")

    async def play() -> ApiError:
        app = web.Application()
        app.router.add_get("/{path:.*}", page)
        async with TestServer(app) as server:
            configuration = kube_client.Configuration(host=str(server.make_url("")).rstrip("/"))
            async with kube_client.ApiClient(configuration) as client:
                with pytest.raises(ApiError, match="Please log in") as raised:
                    await Api(client, 5.0).list(JOBS)
        return raised.value

    error = asyncio.run(play())
    assert (error.reason, error.transient) == ("InvalidJSON", True)


def test_a_server_that_does_not_answer_in_time_is_an_api_error() -> None:
    """The server accepts the connection. After a timeout in a TLS handshake, asyncio closes the connection only later,
    and the test would report an unclosed transport.
    """

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    gone = asyncio.Event()

    async def play() -> ApiError:
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with kube_client.ApiClient(kube_client.Configuration(host=f"http://127.0.0.1:{port}")) as client:
                with pytest.raises(ApiError, match=r"GET /version took longer than 0.5 s") as raised:
                    await Api(client, 0.5).version()
            await asyncio.wait_for(gone.wait(), 10)
        return raised.value

    error = asyncio.run(play())
    assert (error.status, error.reason, error.transient) == (0, "Timeout", True)


@pytest.mark.parametrize(
    ("status", "transient"), [(0, True), (429, True), (503, True), (403, False), (404, False), (409, False)]
)
def test_which_errors_are_transient(status: int, transient: bool) -> None:
    assert ApiError(status, "Reason", "message").transient is transient


def test_the_token_is_read_again_by_the_monotonic_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = 0.0
    monkeypatch.setattr(podium_cluster.access.credentials, "time", SimpleNamespace(monotonic=lambda: passed))
    configuration = kube_client.Configuration()
    configuration.api_key["BearerToken"] = "bearer first"
    file = tmp_path / "token"
    podium_cluster.access.credentials.refresh_token(configuration, file)
    hook: Any = configuration.refresh_api_key_hook
    file.write_text("second")
    hook(configuration)
    assert configuration.api_key["BearerToken"] == "bearer first"
    passed = podium_cluster.access.credentials.TOKEN_SECONDS
    file.unlink()
    hook(configuration)
    file.write_text("second")
    hook(configuration)
    assert configuration.api_key["BearerToken"] == "bearer second"
