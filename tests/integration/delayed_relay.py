"""A TCP relay to the API server that can delay the server's answers.

The client sees no changes meanwhile, so the scheduler always wins a race that it otherwise wins rarely. Used by
test_extender.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

CHUNK = 1 << 16


class DelayedRelay:
    """A relay from a loopback port to `server`, an https address. It does not terminate TLS."""

    def __init__(self, server: str) -> None:
        address = urlsplit(server)
        self._server = address.hostname or "", address.port or 443
        self._flowing = threading.Event()
        self._flowing.set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._sockets: list[socket.socket] = [self._listener]
        self.address = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    @contextlib.contextmanager
    def delayed(self) -> Iterator[None]:
        """Delay all data from the server within the context; deliver it afterwards."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    def close(self) -> None:
        self._flowing.set()
        for one in self._sockets:
            with contextlib.suppress(OSError):  # the other side has closed it already
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                try:
                    server = socket.create_connection(self._server, timeout=10)
                except OSError:
                    client.close()  # the server is down: the client sees a closed connection, as without the relay
                    continue
                server.settimeout(None)
                self._sockets.append(server)
                threading.Thread(target=self._copy, args=(client, server), daemon=True).start()
                threading.Thread(target=self._copy, args=(server, client, self._flowing), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, flows: threading.Event | None = None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if flows is not None:
                    flows.wait()
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
