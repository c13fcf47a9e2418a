"""Push an image to a registry and delete it again (OCI distribution-spec 1.1, sections "Push" and "Delete").

A checkpoint contains all secrets of its trial, so the registry must belong to the cluster and use TLS. Plain HTTP is
used with loopback addresses only, as runtimes do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO

import aiohttp
from yarl import URL

from podium_agent.migration.archive import Archive
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.image import MANIFEST, Image, sha256
from podium_cluster.access.answers import read_start
from podium_core.schema.checkpoint_image import ImageReference

CONNECT_SECONDS = 5.0
ANSWER_BYTES = 2**16  # read of a response that refuses a request
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry at `address` (host or host:port), with basic authentication if `user` is not empty."""

    address: str
    user: str = ""
    password: str = ""

    @property
    def url(self) -> str:
        """Base URL of the registry."""
        host = self.address if self.address.endswith("]") else self.address.rpartition(":")[0] or self.address
        return f"{'http' if host in LOOPBACK else 'https'}://{self.address}"

    async def push(self, repository: str, image: Image, archive: Archive, seconds: float) -> str:
        """Push an image and return its reference by digest. Raises MigrationError (`RegistryRefused`, ...)."""
        async with self._session(seconds) as session:
            with archive.path.open("rb") as layer:
                await self._blob(session, repository, archive.digest, layer)
            for blob in (image.whiteout, image.config):
                await self._blob(session, repository, sha256(blob), blob)
            url = f"{self.url}/v2/{repository}/manifests/{image.digest}"
            async with session.put(url, data=image.manifest, headers={"Content-Type": MANIFEST}) as response:
                await self._expect(response, 201)
        return self.reference(repository, image)

    def reference(self, repository: str, image: Image) -> str:
        """Return the reference of an image by digest, which a pod can name."""
        return f"{self.address}/{repository}@{image.digest}"

    async def delete(self, image: ImageReference, seconds: float = 30.0) -> None:
        """Delete an image; ignore an image that does not exist.

        The registry's own garbage collection frees the bytes.
        """
        url = f"{self.url}/v2/{image.repository}/manifests/sha256:{image.digest}"
        async with self._session(seconds) as session, session.delete(url) as response:
            await self._expect(response, 202, 404)

    async def _blob(
        self, session: aiohttp.ClientSession, repository: str, digest: str, data: bytes | IO[bytes]
    ) -> None:
        blobs = f"{self.url}/v2/{repository}/blobs"
        async with session.head(f"{blobs}/{digest}") as response:
            if response.status == 200:
                return
        async with session.post(f"{blobs}/uploads/") as response:
            await self._expect(response, 202)
            upload_url = self._upload_url(response).update_query(digest=digest)
        headers = {"Content-Type": "application/octet-stream"}
        async with session.put(upload_url, data=data, headers=headers) as response:
            await self._expect(response, 201)

    @asynccontextmanager
    async def _session(self, seconds: float) -> AsyncIterator[aiohttp.ClientSession]:
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        login = aiohttp.BasicAuth(self.user, self.password) if self.user else None
        try:
            async with aiohttp.ClientSession(timeout=limits, auth=login) as session:
                yield session
        except TimeoutError as error:
            raise MigrationError(
                "RegistryTimeout", f"{self.url} did not accept the image within {seconds:g} s"
            ) from error
        except (OSError, aiohttp.ClientError) as error:
            raise MigrationError("RegistryUnreachable", f"{self.url}: {error}") from error

    def _upload_url(self, response: aiohttp.ClientResponse) -> URL:
        """Return the upload address in the response, which may be relative."""
        location = response.headers.get("Location")
        if not location:
            raise MigrationError(
                "RegistryRefused", f"{self.url} started an upload without an upload address (Location)"
            )
        return response.url.join(URL(location))

    async def _expect(self, response: aiohttp.ClientResponse, *wanted: int) -> None:
        if response.status not in wanted:
            start = await read_start(response.content.iter_any(), ANSWER_BYTES)
            answer = " ".join(start.decode(errors="replace").split())[:300]
            request = f"{response.method} {response.url.path}"
            raise MigrationError("RegistryRefused", f"{self.url} answered {request} with {response.status}: {answer}")
