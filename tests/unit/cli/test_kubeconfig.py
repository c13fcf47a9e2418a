"""Which cluster a command asks: kubeconfigs that are invalid, several, or inside a pod."""

from __future__ import annotations

import json
from pathlib import Path

import certifi
import pytest
from kubernetes.aio.config import incluster_config

from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_cluster.access import kubeconfig


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "ClusterUnreachable: there is no kubeconfig at {path}; name a cluster with --kubeconfig or $KUBECONFIG"),
        ("", "ClusterUnreachable: {path} is not a kubeconfig; "),
        ("[1, 2]", "ClusterUnreachable: {path} is not a kubeconfig; "),
        ("a: [b", "ClusterUnreachable: {path}: while parsing"),
        ("clusters: []", "ClusterUnreachable: {path}: Invalid kube-config file. Expected key current-context"),
    ],
)
def test_an_invalid_kubeconfig_is_named(
    content: str | None,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run(["watch", "x"]) is Exit.CLUSTER
    printed = capsys.readouterr().err
    assert expected.format(path=path) in printed
    assert printed.count("\n") == 1


def test_an_empty_kubeconfig_variable_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", ":")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run(["watch", "x"]) is Exit.CLUSTER
    expected = 'ClusterUnreachable: $KUBECONFIG, ":", names no file; name a cluster with --kubeconfig or $KUBECONFIG'
    assert capsys.readouterr().err == f"podium: {expected}\n"


def write_kubeconfig(path: Path, name: str, port: int) -> None:
    """Write a kubeconfig with one context, the current one, and a namespace."""
    content = {
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}],
        "users": [{"name": name, "user": {"token": "t"}}],
    }
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **content}))


def test_the_first_of_several_kubeconfigs_names_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for port, name in enumerate(("first", "second"), 1):
        write_kubeconfig(tmp_path / name, name, port)
    (tmp_path / "empty").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", ":".join(f"~/{name}" for name in ("missing", "empty", "first", "second")))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    given = ["--kubeconfig=~/second"]
    for options, space, port in (
        ([], "of-first", 1),
        (["--context", "second"], "of-second", 2),
        (given, "of-second", 2),
    ):
        assert run(["get", "trials", "x", *options]) is Exit.CLUSTER
        printed = capsys.readouterr().err
        assert f"/namespaces/{space}/" in printed
        assert f"127.0.0.1:{port} " in printed


def test_a_command_reads_its_kubeconfig_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client library reads it once more, because it resolves relative paths."""
    write_kubeconfig(tmp_path / "config", "x", 1)
    seen: list[Path] = []
    read = kubeconfig._read
    monkeypatch.setattr(kubeconfig, "_read", lambda path: (seen.append(path), read(path))[1])
    assert run(["get", "trials", "x", "--kubeconfig", str(tmp_path / "config")]) is Exit.CLUSTER
    assert seen == [tmp_path / "config"]


def test_in_a_pod_a_kubeconfig_takes_precedence_over_the_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """kubectl does the same. Nothing listens on the ports 1 and 2 of 127.0.0.1."""
    (tmp_path / "namespace").write_text("of-pod")
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text(Path(certifi.where()).read_text())
    monkeypatch.setattr(kubeconfig, "ACCOUNT", tmp_path)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    write_kubeconfig(tmp_path / "config", "x", 1)
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "2")
    for file, port, space in (("config", 1, "of-x"), ("missing", 2, "of-pod")):
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / file))
        assert run(["get", "trials", "x"]) is Exit.CLUSTER
        printed = capsys.readouterr().err
        assert f"127.0.0.1:{port} " in printed
        assert f"/namespaces/{space}/" in printed
    assert run(["get", "trials", "x", "--context", "other"]) is Exit.CLUSTER
    assert "there is no kubeconfig at" in capsys.readouterr().err
