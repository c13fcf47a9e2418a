"""Credentials that expire while a command runs: they are renewed, and a refusal that lasts ends `podium watch`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_server import ApiServer, kubeconfig_of, serving, with_version

from podium_cli.commands import watch
from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_cli.samples import search_at
from podium_cluster.access import credentials
from podium_cluster.client import ApiError, connect
from podium_cluster.resources import JOBS
from podium_cluster.settings import ClusterSettings

PLUGIN = """\
#!/bin/sh
echo run >>{folder}/runs
cat {folder}/answer
"""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with serving() as started:
        started.put(*map(with_version, search_at(100)))
        yield started


def issue(folder: Path, token: str, expires: str | None) -> None:
    """Let the plugin return this token from now on."""
    given = {"token": token} | ({"expirationTimestamp": expires} if expires else {})
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": given}
    (folder / "answer").write_text(json.dumps(answer))


def with_plugin(server: ApiServer, folder: Path) -> Path:
    """Return a kubeconfig whose user gets its token from an exec plugin."""
    plugin = folder / "plugin"
    plugin.write_text(PLUGIN.format(folder=folder))
    plugin.chmod(0o755)
    path = kubeconfig_of(server, folder)
    content = json.loads(path.read_text())
    used = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    content["users"] = [{"name": "u", "user": {"exec": used}}]
    path.write_text(json.dumps(content))
    return path


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


@pytest.mark.parametrize("expires", [None, "2099-01-01T00:00:00Z"])
def test_a_refused_token_is_replaced(
    expires: str | None, server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "RETRY_SECONDS", 0.0)
    server.token = "first"
    issue(tmp_path, "first", expires)
    kubeconfig = with_plugin(server, tmp_path)

    async def play() -> None:
        async with connect(ClusterSettings(kubeconfig=kubeconfig)) as api:
            for _ in range(3):
                await api.list(JOBS)
            assert runs(tmp_path) == 1, "the plugin runs only when it must"
            server.token = "second"
            issue(tmp_path, "second", expires)
            with pytest.raises(ApiError, match="Unauthorized"):
                await api.list(JOBS)
            await api.list(JOBS)
            assert runs(tmp_path) == 2

    asyncio.run(play())


def test_a_token_that_expires_is_replaced_before_a_refusal(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "RETRY_SECONDS", 0.0)
    server.token = "first"
    issue(tmp_path, "first", "2020-01-01T00:00:00Z")
    kubeconfig = with_plugin(server, tmp_path)

    async def play() -> None:
        async with connect(ClusterSettings(kubeconfig=kubeconfig)) as api:
            await api.list(JOBS)
            server.token = "second"
            issue(tmp_path, "second", "2099-01-01T00:00:00Z")
            await api.list(JOBS)

    asyncio.run(play())


def test_a_refusal_that_lasts_ends_a_watch(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "REFUSED_SECONDS", 1.0)
    kubeconfig = kubeconfig_of(server, tmp_path)

    def expire(path: str) -> None:
        if path.endswith("/hyperparamtrials") and server.requests.count(path) > 2:
            server.token = "next"

    server.before = expire
    given = ["watch", "digits", "--until-done", "--timeout", "60", "--kubeconfig", str(kubeconfig)]
    assert run(given) is Exit.CLUSTER
    printed = capsys.readouterr()
    assert "job digits Running" in printed.out
    assert "Unauthorized: the cluster refuses the credentials" in printed.err
