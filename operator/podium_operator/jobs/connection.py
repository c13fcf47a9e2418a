"""The connection of kopf to the API server: Podium's account, with limits that kopf does not have.

Only the leader writes: kopf sets annotations by itself, which an operator that was stopped must not do afterwards.

kopf reopens a watch immediately, and an invalid line ends it. Requests of one path are therefore spaced, and an invalid
or endless response looks like a lost connection, which kopf survives.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import aiohttp
import kopf

from podium_cluster.access.answers import (
    MAX_ANSWER_BYTES,
    MAX_LINE_BYTES,
    check_event,
    parse_object,
    read_all,
    read_lines,
)
from podium_cluster.access.connections import probed_socket
from podium_cluster.access.kubeconfig import find_target
from podium_cluster.errors import ApiError

REQUEST_SECONDS = 1.0  # average time between two requests of one path
BURST = 2  # a list and its watch
MAX_PATHS = 100


class RequestSpacing:
    """A middleware of aiohttp that lets at most one GET a second of each path pass, after a burst of two."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Wait until the request may be sent, and send it."""
        if request.method == "GET":
            await asyncio.sleep(self._wait(request.url.path, asyncio.get_running_loop().time()))
        response = await handler(request)
        if response.status < 400:
            response.content = cast(aiohttp.StreamReader, CheckedContent(response.content, f"GET {request.url.path}"))
        return response

    def _wait(self, path: str, now: float) -> float:
        earliest = max(self._next.get(path, -math.inf), now - (BURST - 1) * REQUEST_SECONDS)
        self._next[path] = earliest + REQUEST_SECONDS
        if len(self._next) > MAX_PATHS:
            self._next = {one: at for one, at in self._next.items() if at > now}
        return max(0.0, earliest - now)


class LeaderWrites:
    """A middleware of aiohttp that refuses all requests but GET while another operator may lead."""

    def __init__(self, may_write: Callable[[], bool]) -> None:
        self._may_write = may_write

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send the request; raise ClientConnectionError, which kopf survives, for a write that is not allowed."""
        if request.method != "GET" and not self._may_write():
            raise aiohttp.ClientConnectionError(f"{request.method} {request.url.path}: this operator does not lead")
        return await handler(request)


class CheckedContent:
    """The body of a response: kopf reads a list with `read`, and a watch with `iter_chunked`."""

    def __init__(self, content: aiohttp.StreamReader, what: str) -> None:
        self._content = content
        self._what = what

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self, count: int = -1) -> bytes:
        """Return the whole body; raise ClientPayloadError if it is too large or not a JSON object."""
        try:
            body = await read_all(self._content.iter_any(), MAX_ANSWER_BYTES, self._what)
            parse_object(body, self._what)
        except ApiError as error:
            raise aiohttp.ClientPayloadError(str(error)) from error
        return body

    async def iter_chunked(self, count: int) -> AsyncIterator[bytes]:
        """Yield the lines of a watch; raise ClientPayloadError for an invalid event."""
        try:
            async for line in read_lines(self._content.iter_any(), MAX_LINE_BYTES, self._what):
                try:
                    check_event(parse_object(line, self._what), self._what)
                except ApiError as error:
                    if not error.expired:
                        raise
                yield line + b"\n"
        except ApiError as error:
            raise aiohttp.ClientPayloadError(str(error)) from error


async def login(may_write: Callable[[], bool], **arguments: Any) -> kopf.AiohttpSession | None:
    """Return a session of the kubeconfig or the pod's service account, as Podium's client chooses.

    `may_write`: whether this operator leads.
    """
    info = await asyncio.to_thread(_credentials, **arguments)
    if info is None:
        return None
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context(), socket_factory=probed_socket),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        middlewares=[LeaderWrites(may_write), RequestSpacing()],
    )
    return kopf.AiohttpSession(
        server=info.server,
        default_namespace=info.default_namespace,
        expiration=info.expiration,
        aiohttp_session=session,
    )


def _credentials(**arguments: Any) -> kopf.ConnectionInfo | None:
    account = kopf.login_with_service_account(**arguments) if find_target(None, None).account else None
    if account is None:
        return kopf.login_with_kubeconfig(**arguments)
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    # kopf would resolve kubernetes.default.svc, which not every cluster serves; the address is in every pod
    address = f"[{host}]" if ":" in host else host
    return replace(
        account,
        server=f"https://{address}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}",
        # the kubelet renews the token on disk: read it again before the old one is refused
        expiration=datetime.now(UTC) + timedelta(minutes=30),
    )
