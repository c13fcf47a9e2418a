"""YAML as kubectl reads it. Whether kubectl really does is asked in tests/integration/test_crds.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from podium_core.schema import manifests
from podium_core.schema.manifests import ManifestError, parse_manifests, read_manifests


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1e3", 1000),
        ("1.0", 1),
        ("1_000", 1000),
        ("010", 8),
        ("0x1F", 31),
        ("0x_", "0x_"),
        ("0o_", "0o_"),
        ("0b_", "0b_"),
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


def test_json_is_read_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects saved from a cluster are megabytes: the YAML reader is not asked."""
    monkeypatch.setattr(manifests, "YAML", None)
    text = '\n{\t"a": [1.0, 1e-4, 1E3, 7], "b": "\\ud83d\\ude00", "c": null}\n'
    assert parse_manifests(text) == [{"a": [1, 1e-4, 1000, 7], "b": "\U0001f600", "c": None}]
    assert type(parse_manifests(text)[0]["a"][0]) is int


@pytest.mark.parametrize("text", ["{a: 1, b: yes}", "{a: 1, b: yes} # said\n", '{"a": 1, "b": yes}\n---\n'])
def test_a_brace_may_begin_yaml(text: str) -> None:
    assert parse_manifests(text) == [{"a": 1, "b": True}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "f.yaml: .*line"),
        ("- 1", "document 1 is \\[1\\]"),
        ("a: 1\na: 2", "duplicate key"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ("a: !!int x", "f.yaml: invalid literal"),
        (f"a: {'9' * 5000}", "f.yaml: Exceeds the limit"),
        (f"a: {'[' * 3000}", "f.yaml: nested too deeply"),
        (f'{{"a": {"[" * 3000}{"]" * 3000}}}', "f.yaml: nested too deeply"),
        ("a: &a [*a]", "f.yaml: nested too deeply"),
        ("a: &a {b: *a}", "f.yaml: nested too deeply"),
    ],
)
def test_what_is_no_manifest(text: str, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        parse_manifests(text, "f.yaml")


def test_aliases_of_aliases_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine lines stood for a thousand million values, and each was written out."""
    monkeypatch.setattr(manifests, "MAX_VALUES", 1000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ManifestError, match=r"f.yaml: more than 1000 values once its aliases \(\*name\) are written"):
        parse_manifests("\n".join(lines), "f.yaml")
    assert len(parse_manifests("\n".join(lines[:2]), "f.yaml")[0]) == 2
