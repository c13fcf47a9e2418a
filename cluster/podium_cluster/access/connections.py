"""The connections to the API server: they notice a dead peer, and are replaced when the client certificate is.

A connection has the certificate of its handshake. After a renewal new requests need new connections, while streams that
have begun, such as a log, continue on the old ones.

A stream that only receives, such as a watch, does not notice that the peer is gone (a power loss, a cut network, a
translation that a router forgot). The kernel therefore probes the peer of a silent connection.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import client as kube_client
from kubernetes.aio.client.rest import RESTClientObject

PROBE_AFTER_SECONDS = 15  # of silence
PROBE_SECONDS = 5  # between two probes
DEAD_SECONDS = 30  # without an answer to a probe or to data


class Pool(RESTClientObject):
    """The library's pool of connections, with probes of silent ones."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(limit=self.maxsize, ssl=self.ssl_context, socket_factory=probed_socket)


def probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket whose connection ends if the peer is silent.

    Other systems than Linux lack some of the options.
    """
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", PROBE_AFTER_SECONDS),
        ("TCP_KEEPINTVL", PROBE_SECONDS),
        ("TCP_KEEPCNT", DEAD_SECONDS // PROBE_SECONDS),
        ("TCP_USER_TIMEOUT", DEAD_SECONDS * 1000),
    ):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


class Connections:
    """The pool of connections of a client."""

    def __init__(self, client: kube_client.ApiClient) -> None:
        self._client = client
        self._requests: Counter[int] = Counter()  # open ones, by the id of their pool
        self._version = 0
        self._certificate = _certificate(client.configuration)

    @asynccontextmanager
    async def pool(self, version: int) -> AsyncIterator[Any]:
        """Yield the pool for one request with the credentials of this version.

        The pool of an old certificate is closed after its last request.
        """
        if version != self._version:
            await self._renew(version)
        pool = self._client.rest_client
        self._requests[id(pool)] += 1
        try:
            yield pool
        finally:
            self._requests[id(pool)] -= 1
            if pool is not self._client.rest_client:
                await self._close_unused(pool)

    async def _renew(self, version: int) -> None:
        """Use the configuration's certificate for the connections from now on, if it is another one."""
        certificate = _certificate(self._client.configuration)
        if certificate != self._certificate:
            old, self._client.rest_client = self._client.rest_client, Pool(self._client.configuration)
            self._certificate = certificate
            await self._close_unused(old)
        self._version = version

    async def _close_unused(self, pool: Any) -> None:
        if not self._requests[id(pool)]:
            del self._requests[id(pool)]
            await pool.close()


def _certificate(configuration: kube_client.Configuration) -> tuple[bytes, ...]:
    """Return the content of the files of client certificate and key."""
    return tuple(Path(file).read_bytes() for file in (configuration.cert_file, configuration.key_file) if file)
