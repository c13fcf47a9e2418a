"""Unix socket of the agent to which the pods of its node connect: identity of the peer, and limits.

The kernel names the peer, and the peer's cgroup names its pod and container (`gate_peer`). So no token is needed, and a
tenant cannot pose as another pod. The connections of each pod are limited (`gate_limits`). The gates and the server of
reported metrics serve their protocols on it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from podium_agent.schedule.gate_limits import GateLimits
from podium_agent.schedule.gate_peer import identify

BACKLOG = 256
ACCEPTED_AT_ONCE = 16  # connections that asyncio accepts before other tasks run
LINE_BYTES = 8192  # of one line; a completion marker has at most 4096
Talk = Callable[[str, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class TrialSocket:
    """Socket of one protocol.

    `talk` serves a connection; it gets the pod's uid, empty for a process in no pod.
    """

    def __init__(self, proc: Path, talk: Talk, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._talk = talk
        self._limits: GateLimits[asyncio.WriteTransport] = GateLimits(clock)

    @asynccontextmanager
    async def serve(self, path: Path) -> AsyncIterator[None]:
        """Listen at this path."""
        listener = _bound(path)
        server = await asyncio.start_unix_server(
            self._accept, sock=listener, limit=LINE_BYTES, backlog=ACCEPTED_AT_ONCE
        )
        listener.listen(BACKLOG)
        try:
            yield
        finally:
            server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = identify(self._proc, writer.get_extra_info("socket"))
        pod_uid = "" if peer is None else peer.pod_uid
        accepted, oldest = self._limits.admit(pod_uid, writer.transport)
        if oldest is not None:
            oldest.abort()
        if not accepted:
            writer.transport.abort()
            return
        try:
            await self._talk(pod_uid, reader, writer)
        except (TimeoutError, ConnectionError, ValueError):
            pass  # the peer has gone, or sends something else; it connects again
        except asyncio.CancelledError:
            pass  # the agent stops; asyncio would report the cancellation as an error
        finally:
            self._limits.release(pod_uid, writer.transport)
            writer.close()


def _bound(path: Path) -> socket.socket:
    """Return a socket at this path, which any user may connect to: trials run as any user id."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    return listener
