"""The certificates satisfy a strict verifier."""

from __future__ import annotations

import subprocess
from pathlib import Path

from podium_devcluster.runtime import pki
from podium_devcluster.runtime.network import addresses

NODES = addresses(("node-1", "node-2"))


def test_every_component_gets_a_certificate() -> None:
    names = {certificate.name: certificate for certificate in pki.wanted(NODES)}
    assert names["node-2"].common_name == "system:node:node-2"
    assert names["node-2"].organization == "system:nodes"
    assert names["node-2"].sans == ("DNS:node-2", "IP:10.88.0.12")
    assert {"IP:127.0.0.1", "IP:10.96.0.1", "IP:10.88.0.1"} <= set(names["apiserver"].sans)
    assert names["admin"].organization == "system:masters"


def test_fingerprint_changes_with_the_nodes() -> None:
    assert pki.fingerprint(pki.wanted(NODES)) != pki.fingerprint(pki.wanted(NODES[:1]))


def test_openssl_verifies_strictly_and_a_second_call_makes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    assert pki.create(folder, NODES[:1]) is True
    verify = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.crt", "apiserver.crt", "node-1.crt", "admin.crt"]
    verified = subprocess.run(verify, cwd=folder, capture_output=True, text=True, timeout=300)
    assert verified.returncode == 0, verified.stderr
    text = ["openssl", "x509", "-in", "apiserver.crt", "-noout", "-text"]
    shown = subprocess.run(text, cwd=folder, capture_output=True, text=True, timeout=300).stdout
    for wanted in ("Basic Constraints: critical", "Key Usage: critical", "Authority Key Identifier", "127.0.0.1"):
        assert wanted in shown
    assert (folder / "ca.key").stat().st_mode & 0o077 == 0
    assert pki.create(folder, NODES[:1]) is False
    assert pki.create(folder, NODES) is True


def test_an_interrupted_run_starts_again(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("half")
    assert pki.create(tmp_path, ()) is True


def test_a_kubeconfig_is_complete_and_private(tmp_path: Path) -> None:
    for name in ("ca.crt", "admin.crt", "admin.key"):
        (tmp_path / name).write_bytes(name.encode())
    target = tmp_path / "kubeconfig"
    pki.write_kubeconfig(target, "https://127.0.0.1:1234", tmp_path, "admin", "podium-x")
    text = target.read_text()
    assert "server: https://127.0.0.1:1234" in text
    assert "client-key-data: YWRtaW4ua2V5" in text
    assert "current-context: podium-x" in text
    assert target.stat().st_mode & 0o077 == 0
