"""Where a cluster is looked for: as kubectl does, which was asked (1.36: `config view --minify`, `create token x`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium_cluster import kubeconfig
from podium_cluster.kubeconfig import by_account, context_of, kubeconfigs


@pytest.mark.parametrize(
    ("told", "files"),
    [
        (None, ["/home/me/.kube/config"]),
        ("", ["/home/me/.kube/config"]),
        (":", []),
        (":/a::/b:", ["/a", "/b"]),
        ("~/c", ["/home/me/c"]),
        ("~nobody-of-this-name/c", ["~nobody-of-this-name/c"]),
    ],
)
def test_files(told: str | None, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl leaves ~ to the shell, the client library does not."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if told is not None:
        monkeypatch.setenv("KUBECONFIG", told)
    assert [str(path) for path in kubeconfigs(None)] == files
    assert kubeconfigs(Path("/given")) == [Path("/given")]


def test_the_first_that_says_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    files = [tmp_path / name for name in ("missing", "broken", "odd", "first", "second")]
    files[1].write_text("a: [b")
    files[2].write_bytes(b"\xff\xfe")
    spaces = {"x": "of-x", "y": "2", "z": None}
    for path, current, contexts in ((files[3], "x", {"y": "1"}), (files[4], "y", spaces)):
        there = [{"name": name, "context": {"namespace": space}} for name, space in contexts.items()]
        path.write_text(json.dumps({"current-context": current, "contexts": there}))
    assert context_of(files, None) == ("x", "of-x")
    assert context_of(files, "y") == ("y", "1")
    assert context_of(files, "z") == ("z", "default")
    assert context_of(files[:3], None) == (None, "default")


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pod of the namespace `here`; its home, which is empty."""
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
def test_a_pods_own_account_is_for_who_has_no_kubeconfig(
    content: str | None, account: bool, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, usual = pod / "named", pod / ".kube" / "config"
    usual.parent.mkdir()
    if content is not None:
        usual.write_text(content)
    assert by_account(None, None) is account
    usual.write_text(CURRENT)
    if content is not None:
        named.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(named))
    assert by_account(None, None) is account
    assert not by_account(named, None)
    assert not by_account(None, "x")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert not by_account(None, None)


def test_a_namespace_that_no_context_names_is_the_pods(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pod / "config"
    path.write_text(CURRENT)
    assert context_of([], None) == (None, "here")
    assert context_of([path], None) == ("x", "here")
    monkeypatch.setenv("POD_NAMESPACE", "told")
    assert context_of([], None) == (None, "told")
    path.write_text(CURRENT.replace("{}", '{"namespace": "default"}'))
    assert context_of([path], None) == ("x", "default")
    monkeypatch.delenv("POD_NAMESPACE")
    (kubeconfig.ACCOUNT / "namespace").unlink()
    assert context_of([], None) == (None, "default")
