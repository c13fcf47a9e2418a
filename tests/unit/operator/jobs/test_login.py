"""kopf connects to the same cluster as the operator's own client."""

from __future__ import annotations

import json
from pathlib import Path

import kopf
import pytest

from podium_operator.jobs import connection


def test_kopf_uses_the_service_account_unless_a_kubeconfig_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="of-pod")
    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: account)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    given = {"settings": kopf.OperatorSettings()}
    found = connection._credentials(**given)
    assert found is not None
    assert found.expiration is not None
    assert (found.server, found.token) == ("https://[fd00::1]:443", "of-pod")
    content = {
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {"token": "of-x"}}],
    }
    (tmp_path / "config").write_text(json.dumps(content))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    found = connection._credentials(**given)
    assert found is not None
    assert (found.server, found.token) == ("http://127.0.0.1:1", "of-x")
