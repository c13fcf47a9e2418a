"""Serve a source on loopback until interrupted."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from podium_dashboard.hub import Hub
from podium_dashboard.pages.renderer import PageRenderer
from podium_dashboard.server.access import TokenAccess
from podium_dashboard.server.app import create_app
from podium_dashboard.server.connections import BoundedProtocol
from podium_dashboard.server.viewer import Viewer
from podium_dashboard.sources.source import Source

if TYPE_CHECKING:  # the dashboard of a folder has no client of the API server
    from podium_cluster.client import Api

LOOPBACK = "127.0.0.1"
READY_SECONDS = 60.0  # ten thousand trials are read in 5 s of CPU time, and the machine may be busy


class NotReadyError(Exception):
    """The source has nothing to show yet."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the pages are; the token makes the address a secret."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """Return the address to open."""
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"


def listen(port: int, host: str = LOOPBACK) -> socket.socket:
    """Return a socket of this port; 0: any free port. Raises OSError."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(128)
    except OSError:
        opened.close()
        raise
    return opened


async def serve(
    source: Source, opened: socket.socket, announce: Callable[[Address], None], api: Api | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; `announce` gets the address once the pages have something to show.

    Actions use the rights of `api`; without it there are none.
    """
    hub = Hub()
    address = Address(opened.getsockname()[1], secrets.token_urlsafe(24))
    viewer = Viewer(PageRenderer(source, hub), name="", title=source.title, secret=address.token, api=api)
    server = http_server(create_app(hub, TokenAccess(address.token, address.port, viewer)))
    async with followed(source, hub, server) as following:
        await _until_ready(source, hub, following)
        announce(address)
        await server.serve([opened])
    if not following.cancelled():
        following.result()


@asynccontextmanager
async def followed(source: Source, hub: Hub, server: uvicorn.Server) -> AsyncIterator[asyncio.Task[None]]:
    """Follow the source in a task meanwhile; the server ends when this task ends."""
    following = asyncio.create_task(source.run(hub.state_changed))
    following.add_done_callback(lambda _: setattr(server, "should_exit", True))
    try:
        yield following
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def http_server(app: ASGIApp) -> uvicorn.Server:
    """Return the server of an application, with limits for its connections."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=1,
        )
    )


async def _until_ready(source: Source, hub: Hub, following: asyncio.Task[None]) -> None:
    """Wait for the first state of a cluster. Raises NotReadyError after a while."""
    loop = asyncio.get_running_loop()
    end = loop.time() + READY_SECONDS
    while not source.state().ready and not following.done():
        if loop.time() > end:
            problems = " ".join(source.state().problems)
            raise NotReadyError(problems or f"no answer within {READY_SECONDS:g} s")
        await hub.wait_newer(hub.version, 0.5)
