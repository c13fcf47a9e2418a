"""Client certificates renewed while a client is open, on a TLS server that asks for them, as kube-apiserver."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from podium_cluster.access import credentials
from podium_cluster.client import ApiError, connect, connect_for_others
from podium_cluster.settings import ClusterSettings

PLUGIN = "#!/bin/sh\necho run >>{folder}/runs\ncat {folder}/answer\n"
SOON = "2020-01-01T00:00:00Z"  # has passed, so the next request is due


class TlsServer:
    """An API server that serves `accepted`, the common name of a client certificate, and refuses others (401)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.accepted = "first"
        self.seen: list[str] = []
        self.tokens: list[str] = []
        self.finish = asyncio.Event()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        subject = (request.transport.get_extra_info("peercert") or {}).get("subject", ())
        names = [value for part in subject for key, value in part if key == "commonName"]
        self.seen.append(names[0] if names else "")
        self.tokens.append(request.headers.get("Authorization", ""))
        if names != [self.accepted]:
            return web.json_response(
                {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"}, status=401
            )
        if not request.path.endswith("/log"):
            return web.json_response({"gitVersion": "v1.34.0"})
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"one\n")
        await self.finish.wait()
        await answer.write(b"two\n")
        return answer

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.folder / "ca.crt"))
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        return context


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with an authority, and certificates of a server and of two clients."""
    authority = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
    openssl(tmp_path, "ca", *authority)
    for name in ("server", "first", "second"):
        openssl(tmp_path, name, "basicConstraints=critical,CA:FALSE", "subjectAltName=IP:127.0.0.1", signed=True)
    return tmp_path


def openssl(folder: Path, name: str, *extensions: str, signed: bool = False) -> None:
    """Make a certificate, which the authority or itself signs."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt"]
    command += ["-CA", "ca.crt", "-CAkey", "ca.key"] if signed else []
    for one in extensions:
        command += ["-addext", one]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[TlsServer]:
    server = TlsServer(folder)
    app = web.Application()
    app.router.add_get("/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server.context())
        await site.start()
        server.url = "https://127.0.0.1:{1}".format(*runner.addresses[0])
        yield server
    finally:
        server.finish.set()
        await runner.cleanup()


def kubeconfig(server: TlsServer, user: dict[str, Any]) -> ClusterSettings:
    """Write a kubeconfig with this user."""
    authority = base64.b64encode((server.folder / "ca.crt").read_bytes()).decode()
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server.url, "certificate-authority-data": authority}}],
        "users": [{"name": "u", "user": user}],
    }
    path = server.folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return ClusterSettings(kubeconfig=path)


def plugin(folder: Path) -> dict[str, Any]:
    """Return a user whose credentials an exec plugin prints."""
    program = folder / "plugin"
    program.write_text(PLUGIN.format(folder=folder))
    program.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}}


def issue(folder: Path, name: str, expires: str | None = None) -> None:
    """Let the plugin print this certificate from now on."""
    given = {"clientCertificateData": f"{name}.crt", "clientKeyData": f"{name}.key"}
    shown = {key: (folder / file).read_text() for key, file in given.items()}
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": shown}
    if expires is not None:
        shown["expirationTimestamp"] = expires
    (folder / "answer").write_text(json.dumps(answer))


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "RETRY_SECONDS", 0.0)


def test_a_refused_certificate_of_a_plugin_is_replaced_while_a_log_continues(folder: Path) -> None:
    async def play() -> None:
        async with serving(folder) as server:
            issue(folder, "first")
            async with connect(kubeconfig(server, plugin(folder))) as api:
                log = api.log_chunks("p", "n", {"follow": "true"}, seconds=60)
                assert await anext(log) == b"one\n"
                await api.version()
                server.accepted = "second"
                issue(folder, "second")
                with pytest.raises(ApiError, match="Unauthorized"):
                    await api.version()
                await asyncio.gather(api.version(), api.version(), api.version())
                assert runs(folder) == 2, "it runs once for all requests"
                server.finish.set()
                assert [chunk async for chunk in log] == [b"two\n"]
                await api.version()
            assert server.seen == [*["first"] * 3, *["second"] * 4]

    asyncio.run(play())


def test_a_certificate_that_expires_is_replaced_before_a_refusal(folder: Path) -> None:
    async def play() -> None:
        async with serving(folder) as server:
            issue(folder, "first", SOON)
            async with connect(kubeconfig(server, plugin(folder))) as api:
                server.accepted = "second"
                issue(folder, "second", (datetime.now(UTC) + timedelta(hours=1)).isoformat())
                for _ in range(3):
                    await api.version()
            assert (server.seen, runs(folder)) == (["second"] * 3, 2)

    asyncio.run(play())


def test_certificate_files_that_were_replaced_are_read_after_a_refusal(folder: Path) -> None:
    def install(name: str) -> None:
        for end in ("crt", "key"):
            (folder / f"client.{end}").write_bytes((folder / f"{name}.{end}").read_bytes())

    async def play() -> None:
        async with serving(folder) as server:
            install("first")
            user = {"client-certificate": str(folder / "client.crt"), "client-key": str(folder / "client.key")}
            async with connect(kubeconfig(server, user)) as api:
                await api.version()
                server.accepted = "second"
                install("second")
                with pytest.raises(ApiError, match="Unauthorized"):
                    await api.version()
                await api.version()
            assert server.seen == ["first", "first", "second"]

    asyncio.run(play())


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, "printed no status.token, or clientCertificateData with clientKeyData"),
        ({"clientCertificateData": "x"}, "printed no status.token, or clientCertificateData with clientKeyData"),
        ({"token": "x", "expirationTimestamp": "soon"}, r"expirationTimestamp must be a time .*\(got 'soon'\)"),
    ],
)
def test_a_plugin_without_credentials_is_an_error(status: dict[str, str], message: str, folder: Path) -> None:
    async def play() -> None:
        async with serving(folder) as server:
            settings = kubeconfig(server, plugin(folder))
            answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
            (folder / "answer").write_text(json.dumps(answer))
            with pytest.raises(Exception, match=message):
                async with connect(settings):
                    pass
            assert server.seen == [], "no request is sent without credentials"

    asyncio.run(play())


def test_requests_with_the_token_of_another_have_no_other_credentials(folder: Path) -> None:
    """An API server prefers a client certificate to a token, so a caller would get the rights of the certificate."""

    async def play() -> None:
        async with serving(folder) as server:
            user = {"client-certificate": f"{folder}/first.crt", "client-key": f"{folder}/first.key", "token": "own"}
            settings = kubeconfig(server, user)
            async with connect(settings) as api, connect_for_others(settings) as client_of:
                await api.version()
                for token in ("ada", "bob"):
                    with pytest.raises(ApiError, match="Unauthorized"):
                        await client_of(token).version()
                await api.version()
            assert server.seen == ["first", "", "", "first"]
            assert server.tokens == ["Bearer own", "Bearer ada", "Bearer bob", "Bearer own"]

    asyncio.run(play())
