"""The connections to the API server, which are replaced when the client certificate is.

A connection has the certificate of its handshake. After a renewal new requests need new connections, while streams that
have begun, such as a log, continue on the old ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kubernetes.aio import client as kube_client
from kubernetes.aio.client.rest import RESTClientObject


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
            old, self._client.rest_client = self._client.rest_client, RESTClientObject(self._client.configuration)
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
