"""Puts an image into a registry and takes it out again (OCI distribution-spec 1.1, sections "Push" and "Delete").

Used by `move`. A checkpoint holds every secret of its trial: the registry must be the cluster's own, behind TLS (plain
HTTP is spoken with loopback only, as runtimes do).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO

import aiohttp
from yarl import URL

from podium_agent.migration.archive import Archive
from podium_agent.migration.image import MANIFEST, Image, sha256
from podium_agent.migration.refusal import MoveError

CONNECT_SECONDS = 5.0
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Registry:
    """`address`: host or host:port. `user`, `password`: basic authentication; empty for none."""

    address: str
    user: str = ""
    password: str = ""

    @property
    def url(self) -> str:
        host = self.address if self.address.endswith("]") else self.address.rpartition(":")[0] or self.address
        return f"{'http' if host in LOOPBACK else 'https'}://{self.address}"

    async def push(self, repository: str, image: Image, archive: Archive, seconds: float) -> str:
        """The reference by digest that a pod can name. Raises MoveError (`RegistryRefused`, ...)."""
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
        return f"{self.address}/{repository}@{image.digest}"

    async def delete(self, reference: str, seconds: float = 30.0) -> None:
        """Of a reference that `push` gave; one that is gone already is no error. The registry's own garbage collection
        frees the bytes."""
        name, _, digest = reference.partition("@")
        repository = name.removeprefix(f"{self.address}/")
        async with (
            self._session(seconds) as session,
            session.delete(f"{self.url}/v2/{repository}/manifests/{digest}") as response,
        ):
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
            where = self._upload(response).update_query(digest=digest)
        headers = {"Content-Type": "application/octet-stream"}
        async with session.put(where, data=data, headers=headers) as response:
            await self._expect(response, 201)

    @asynccontextmanager
    async def _session(self, seconds: float) -> AsyncIterator[aiohttp.ClientSession]:
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        login = aiohttp.BasicAuth(self.user, self.password) if self.user else None
        try:
            async with aiohttp.ClientSession(timeout=limits, auth=login) as session:
                yield session
        except TimeoutError as error:
            raise MoveError("RegistryTimeout", f"{self.url} did not take it within {seconds:g} s") from error
        except (OSError, aiohttp.ClientError) as error:
            raise MoveError("RegistryUnreachable", f"{self.url}: {error}") from error

    def _upload(self, response: aiohttp.ClientResponse) -> URL:
        """Where the bytes are to be sent: the registry says it, relative to itself or not."""
        location = response.headers.get("Location")
        if not location:
            raise MoveError("RegistryRefused", f"{self.url} began an upload and did not say where to send it")
        return response.url.join(URL(location))

    async def _expect(self, response: aiohttp.ClientResponse, *wanted: int) -> None:
        if response.status not in wanted:
            said = " ".join((await response.text(errors="replace")).split())[:300]
            asked = f"{response.method} {response.url.path}"
            raise MoveError("RegistryRefused", f"{self.url} answered {asked} with {response.status}: {said}")
