"""The choice of a cluster follows kubectl 1.36 (`config view --minify`, `create token x`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from podium_cluster.access import kubeconfig
from podium_cluster.access.kubeconfig import ClusterTarget, find_target, kubeconfig_paths


@pytest.mark.parametrize(
    ("variable", "files"),
    [
        (None, ["/home/me/.kube/config"]),
        ("", ["/home/me/.kube/config"]),
        (":", []),
        (":/a::/b:", ["/a", "/b"]),
        ("~/c", ["/home/me/c"]),
        ("~no-such-user/c", ["~no-such-user/c"]),
    ],
)
def test_kubeconfig_paths(variable: str | None, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """For kubectl the shell expands ~; the client library does it itself."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if variable is not None:
        monkeypatch.setenv("KUBECONFIG", variable)
    assert [str(path) for path in kubeconfig_paths(None)] == files
    assert kubeconfig_paths(Path("/given")) == [Path("/given")]
    assert kubeconfig_paths(Path("~/given")) == [Path("/home/me/given")]


def find(monkeypatch: pytest.MonkeyPatch, files: Sequence[Path], wanted: str | None = None) -> ClusterTarget:
    """Return the target for these files in $KUBECONFIG."""
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, files)) or ":")
    return find_target(None, wanted)


def test_the_first_file_with_a_value_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    files = [tmp_path / name for name in ("missing", "broken", "odd", "first", "second", "empty")]
    files[1].write_text("a: [b")
    files[2].write_bytes(b"\xff\xfe")
    files[5].write_text("# nothing yet\n")
    spaces = {"x": "of-x", "y": "2", "z": None}
    for path, current, contexts in ((files[3], "x", {"y": "1"}), (files[4], "y", spaces)):
        there = [{"name": name, "context": {"namespace": space}} for name, space in contexts.items()]
        path.write_text(json.dumps({"current-context": current, "contexts": there}))
    for wanted, context, namespace in ((None, "x", "of-x"), ("y", "y", "1"), ("z", "z", "default")):
        found = find(monkeypatch, files, wanted)
        assert (found.context, found.namespace) == (context, namespace)
        assert found.files == tuple(files[1:5]), "the files that the client has to read"
    found = find(monkeypatch, files[:3])
    assert (found.context, found.namespace) == (None, "default")
    assert find(monkeypatch, [files[0], files[5]]).files == (files[0], files[5]), "all named files"


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a pod of the namespace `here`, and return its empty home."""
    home, account = tmp_path / "home", tmp_path / "account"
    for folder in (home, account):
        folder.mkdir()
    (account / "namespace").write_text("here\n")
    monkeypatch.setattr(kubeconfig, "ACCOUNT", account)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HOME", str(home))
    for name in ("KUBECONFIG", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    return home


CURRENT = json.dumps({"current-context": "x", "contexts": [{"name": "x", "context": {}}]})


@pytest.mark.parametrize(
    ("content", "account"),
    [
        (None, True),
        ("", True),
        ('{"contexts": [], "current-context": ""}', True),
        (CURRENT, False),
        ("a: [b", False),
        ("[1, 2]", False),
    ],
)
def test_the_service_account_is_used_without_a_kubeconfig(
    content: str | None, account: bool, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, usual = pod / "named", pod / ".kube" / "config"
    usual.parent.mkdir()
    if content is not None:
        usual.write_text(content)
    assert find_target(None, None).account is account
    usual.write_text(CURRENT)
    if content is not None:
        named.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(named))
    assert find_target(None, None).account is account
    assert not find_target(named, None).account
    assert not find_target(None, "x").account
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert not find_target(None, None).account


def test_the_default_namespace_is_the_pods(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pod / "config"
    path.write_text(CURRENT)
    found = find(monkeypatch, [])
    assert (found.context, found.namespace) == (None, "here")
    found = find(monkeypatch, [path])
    assert (found.context, found.namespace) == ("x", "here")
    monkeypatch.setenv("POD_NAMESPACE", "from-env")
    found = find(monkeypatch, [])
    assert (found.context, found.namespace) == (None, "from-env")
    path.write_text(CURRENT.replace("{}", '{"namespace": "default"}'))
    found = find(monkeypatch, [path])
    assert (found.context, found.namespace) == ("x", "default")
    monkeypatch.delenv("POD_NAMESPACE")
    (kubeconfig.ACCOUNT / "namespace").unlink()
    found = find(monkeypatch, [])
    assert (found.context, found.namespace) == (None, "default")
