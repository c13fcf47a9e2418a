"""Where a cluster is looked for: as kubectl does, which was asked (1.36: `config view --minify`, `get pods`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium_cluster.kubeconfig import context_of, kubeconfigs


@pytest.mark.parametrize(
    ("told", "files"),
    [
        (None, ["/home/me/.kube/config"]),
        ("", ["/home/me/.kube/config"]),
        (":", []),
        (":/a::/b:", ["/a", "/b"]),
        ("~/c", ["/home/me/c"]),
    ],
)
def test_files(told: str | None, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if told is not None:
        monkeypatch.setenv("KUBECONFIG", told)
    assert [str(path) for path in kubeconfigs(None)] == files
    assert kubeconfigs(Path("/given")) == [Path("/given")]


def test_the_first_that_says_it_counts(tmp_path: Path) -> None:
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
