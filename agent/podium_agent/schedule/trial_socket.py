"""Unix socket of the agent to which the pods of its node connect: identity of the peer, and limits.

The kernel names the peer, and the peer's cgroup names its pod and container (`gate_peer`). So no token is needed, and a
tenant cannot pose as another pod. The gates and the server of reported metrics serve their protocols on it.

Every pod of the node can connect as often as it likes. A pod that does so is refused before anything is read from it,
so it wakes no other part of the agent, and the gates of other pods are served as before.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from podium_agent.schedule.gate_peer import identify

BACKLOG = 256
ACCEPTED_AT_ONCE = 16  # connections that asyncio accepts before other tasks run
LINE_BYTES = 8192  # of one line; a completion marker has at most 4096
MAX_CONNECTIONS = 1024
MAX_PER_POD = 4  # a gate has one, and a second one while the kernel still reports the first
BURST = 10  # connections of one pod in succession
SECONDS_PER_CONNECTION = 1.0  # of one pod, on average; a gate waits for up to a second before it connects again
# From Python 3.13 on, asyncio looks at the socket's path, and removes it at the end. The path of a gate's socket begins
# with a descriptor that is closed by then, and may be another file's.
KEPT: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
C = TypeVar("C")
Talk = Callable[[str, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class ConnectionLimits(Generic[C]):
    """Limits of the connections for each pod and in all, in number and in frequency.

    Pods are named by uid; processes in no pod share the empty one.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[str, list[C]] = {}
        self._count = 0
        self._next: dict[str, float] = {}

    def admit(self, pod_uid: str, connection: C) -> tuple[bool, C | None]:
        """Return whether the connection is accepted, and the pod's oldest one if that must be closed."""
        now = self._clock()
        earliest = max(self._next.get(pod_uid, now), now)
        if earliest - now > (BURST - 1) * SECONDS_PER_CONNECTION or self._count >= MAX_CONNECTIONS:
            return False, None
        self._next = {uid: at for uid, at in self._next.items() if at > now}
        self._next[pod_uid] = earliest + SECONDS_PER_CONNECTION
        opened = self._open.setdefault(pod_uid, [])
        oldest = opened.pop(0) if len(opened) >= MAX_PER_POD else None
        opened.append(connection)
        self._count += oldest is None
        return True, oldest

    def release(self, pod_uid: str, connection: C) -> None:
        """Forget an accepted connection that is closed now; one that was replaced is forgotten already."""
        opened = self._open.get(pod_uid, [])
        if connection not in opened:
            return
        opened.remove(connection)
        self._count -= 1
        if not opened:
            del self._open[pod_uid]


class TrialSocket:
    """Socket of one protocol.

    `talk` serves a connection; it gets the pod's uid, empty for a process in no pod.
    """

    def __init__(self, proc: Path, talk: Talk, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._talk = talk
        self._limits: ConnectionLimits[asyncio.WriteTransport] = ConnectionLimits(clock)

    @asynccontextmanager
    async def serve(self, path: Path) -> AsyncIterator[None]:
        """Listen at this path."""
        server = await self.listen(bind(path))
        try:
            yield
        finally:
            server.close()

    async def listen(self, listener: socket.socket) -> asyncio.Server:
        """Serve a bound socket until the returned server is closed."""
        server = await asyncio.start_unix_server(
            self._accept, sock=listener, limit=LINE_BYTES, backlog=ACCEPTED_AT_ONCE, **KEPT
        )
        listener.listen(BACKLOG)
        return server

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


def bind(path: Path) -> socket.socket:
    """Return a socket at this path, which any user may connect to: trials run as any user id."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    return listener
