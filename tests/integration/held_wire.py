"""A TCP relay to the API server whose answers can be held back: whoever is behind it learns of nothing new meanwhile.
So a race that the scheduler wins now and then is won each time. Used by test_extender.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

CHUNK = 1 << 16


class HeldWire:
    """From a port of loopback to `server`, an https address; TLS goes through it untouched."""

    def __init__(self, server: str) -> None:
        address = urlsplit(server)
        self._far = address.hostname or "", address.port or 443
        self._flows = threading.Event()
        self._flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._sockets: list[socket.socket] = [self._listener]
        self.address = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Inside, nothing that the server says comes through; what it said is delivered afterwards."""
        self._flows.clear()
        try:
            yield
        finally:
            self._flows.set()

    def close(self) -> None:
        self._flows.set()
        for one in self._sockets:
            with contextlib.suppress(OSError):  # the other side ended it already
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                try:
                    far = socket.create_connection(self._far, timeout=10)
                except OSError:
                    near.close()  # the server is down: the client sees a closed connection, as without us
                    continue
                far.settimeout(None)
                self._sockets.append(far)
                threading.Thread(target=self._copy, args=(near, far), daemon=True).start()
                threading.Thread(target=self._copy, args=(far, near, self._flows), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, flows: threading.Event | None = None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if flows is not None:
                    flows.wait()
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
