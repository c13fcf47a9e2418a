"""What the API client makes of answers that are none, and which errors it pays to ask about again."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client as kube_client

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS


def test_a_proxys_page_is_an_error_of_the_api() -> None:
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
    assert (error.reason, error.transient) == ("NotJson", True)


@pytest.mark.parametrize(
    ("status", "transient"), [(0, True), (429, True), (503, True), (403, False), (404, False), (409, False)]
)
def test_which_errors_pass(status: int, transient: bool) -> None:
    assert ApiError(status, "Reason", "message").transient is transient
