"""YAML as kubectl reads it. Whether kubectl really does is asked in tests/integration/test_crds.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from podium.schema.manifests import ManifestError, parse_manifests, read_manifests


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1e3", 1000),
        ("1.0", 1),
        ("1_000", 1000),
        ("010", 8),
        ("0x1F", 31),
        ("yes", True),
        ("off", False),
        ("'yes'", "yes"),
        ("2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z"),
        ("1:30", "1:30"),
        ("12Gi", "12Gi"),
        ("~", None),
        ("", None),
        ("[1e-1, a]", [0.1, "a"]),
    ],
)
def test_plain_words(text: str, value: Any) -> None:
    read = parse_manifests(f"x: {text}")[0]["x"]
    assert read == value
    assert type(read) is type(value)


def test_what_pyyaml_would_make_of_it() -> None:
    assert yaml.safe_load("min: 1e-4") == {"min": "1e-4"}
    assert parse_manifests("min: 1e-4") == [{"min": 1e-4}]


def test_several_documents_in_several_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: A\n---\n---\nkind: B\n")
    (tmp_path / "b.json").write_text('{"kind": "C", "on": 1}')
    found = read_manifests([tmp_path / "a.yaml", tmp_path / "b.json"])
    assert found == [{"kind": "A"}, {"kind": "B"}, {"kind": "C", "on": 1}]


@pytest.mark.parametrize(
    ("text", "words"), [("a: [", "f.yaml: .*line"), ("- 1", "document 1 is \\[1\\]"), ("a: 1\na: 2", "duplicate key")]
)
def test_what_is_no_manifest(text: str, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        parse_manifests(text, "f.yaml")
