"""A kubelet (TLS) and a registry that a test can tell to fail: they keep to KEP-2008 and the distribution-spec.

Used by migration/test_checkpointer.py and migration_scene. The real ones are met by
benchmarks/agent/bench_migration.py. The kubelet writes what containerd does, and refuses a frozen container as runc
does.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import ssl
import tarfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from podium_agent.observe.cgroups import Freezer
from podium_suspension.target import FreezerState

DUMP = {
    "config.dump": json.dumps({"rootfsImageName": "registry/trial:1", "rootfsImageRef": "registry/trial@sha256:1"}),
    "spec.dump": "{}",
    "status.dump": "{}",
    "checkpoint/pages-1.img": "the memory of all processes",
    "container.log": "2026 stdout F a line",
}


def archive_bytes(files: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


@dataclass
class FakeKubelet:
    """`status`, `says`: what it answers instead; `silent`: it writes the archive and never answers; `deaf`: nor does
    it write one. `written` is set when an archive is there."""

    folder: Path
    freezer: Freezer
    files: Mapping[str, str] = field(default_factory=lambda: DUMP)
    mode: int = 0o600
    status: int = 200
    says: str = ""
    silent: bool = False
    deaf: bool = False
    written: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)

    async def checkpoint(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.path_qs} {request.headers.get('Authorization')}")
        if self.deaf:
            await asyncio.Event().wait()
        if self.status != 200:
            return web.Response(status=self.status, text=self.says)
        if self.freezer.frost() is not FreezerState.THAWED:
            return web.Response(status=500, text="OCI runtime pause failed: container not running")
        where = request.match_info
        name = f"checkpoint-{where['pod']}_{where['namespace']}-{where['container']}-2026-11-22T04:52:25Z.tar"
        file = self.folder / name
        file.touch(self.mode)
        file.chmod(self.mode)
        file.write_bytes(archive_bytes(self.files))
        self.written.set()
        if self.silent:
            await asyncio.Event().wait()
        return web.Response(text=self.says or json.dumps({"items": [f"/var/lib/kubelet/checkpoints/{name}"]}))

    @asynccontextmanager
    async def serve(self, pki: Path) -> AsyncIterator[int]:
        trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trust.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
        app = web.Application()
        app.router.add_post("/checkpoint/{namespace}/{pod}/{container}", self.checkpoint)
        async with listening(app, trust) as port:
            yield port


@dataclass
class FakeRegistry:
    """`broken`: it takes no manifest."""

    broken: bool = False
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    uploads: int = 0

    async def head(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if request.match_info["digest"] in self.blobs else 404)

    async def begin(self, request: web.Request) -> web.Response:
        self.uploads += 1
        where = f"/v2/{request.match_info['name']}/blobs/uploads/{self.uploads}?state=kept"
        return web.Response(status=202, headers={"Location": where})

    async def end(self, request: web.Request) -> web.Response:
        data, digest = await request.read(), request.query["digest"]
        if sha256(data) != digest or request.query.get("state") != "kept":
            return web.Response(status=400, text="DIGEST_INVALID")
        self.blobs[digest] = data
        return web.Response(status=201)

    async def manifest(self, request: web.Request) -> web.Response:
        data, digest = await request.read(), request.match_info["digest"]
        parts = json.loads(data)
        named = [parts["config"], *parts["layers"]]
        whole = all(len(self.blobs.get(part["digest"], b"")) == part["size"] for part in named)
        if self.broken or not whole or sha256(data) != digest or request.content_type != parts["mediaType"]:
            return web.Response(status=400, text="MANIFEST_INVALID")
        self.manifests[digest] = data
        return web.Response(status=201)

    async def delete(self, request: web.Request) -> web.Response:
        return web.Response(status=202 if self.manifests.pop(request.match_info["digest"], None) else 404)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[int]:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_head("/v2/{name:.+}/blobs/{digest:sha256:.*}", self.head)
        app.router.add_post("/v2/{name:.+}/blobs/uploads/", self.begin)
        app.router.add_put("/v2/{name:.+}/blobs/uploads/{upload}", self.end)
        app.router.add_put("/v2/{name:.+}/manifests/{digest}", self.manifest)
        app.router.add_delete("/v2/{name:.+}/manifests/{digest}", self.delete)
        async with listening(app, None) as port:
            yield port


@asynccontextmanager
async def listening(app: web.Application, trust: ssl.SSLContext | None) -> AsyncIterator[int]:
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
