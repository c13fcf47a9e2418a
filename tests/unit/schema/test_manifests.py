"""Parsing of YAML as kubectl does it; tests/integration/test_crds.py compares with kubectl itself."""

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
def test_plain_scalars_are_read_as_kubectl_reads_them(text: str, value: Any) -> None:
    parsed = parse_manifests(f"x: {text}")[0]["x"]
    assert parsed == value
    assert type(parsed) is type(value)


def test_exponents_without_a_dot_are_numbers() -> None:
    assert yaml.safe_load("min: 1e-4") == {"min": "1e-4"}
    assert parse_manifests("min: 1e-4") == [{"min": 1e-4}]


def test_several_documents_in_several_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: A\n---\n---\nkind: B\n")
    (tmp_path / "b.json").write_text('{"kind": "C", "on": 1}')
    parsed = read_manifests([tmp_path / "a.yaml", tmp_path / "b.json"])
    assert parsed == [{"kind": "A"}, {"kind": "B"}, {"kind": "C", "on": 1}]


def test_json_is_read_with_the_json_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects saved from a cluster have megabytes, for which the YAML parser would be too slow."""
    monkeypatch.setattr(manifests, "YAML", None)
    text = '\n{\t"a": [1.0, 1e-4, 1E3, 7], "b": "\\ud83d\\ude00", "c": null}\n'
    assert parse_manifests(text) == [{"a": [1, 1e-4, 1000, 7], "b": "\U0001f600", "c": None}]
    assert type(parse_manifests(text)[0]["a"][0]) is int


@pytest.mark.parametrize("text", ["{a: 1, b: yes}", "{a: 1, b: yes} # comment\n", '{"a": 1, "b": yes}\n---\n'])
def test_yaml_may_start_with_a_brace(text: str) -> None:
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
def test_invalid_manifests_are_rejected(text: str, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        parse_manifests(text, "f.yaml")


def test_the_number_of_values_behind_aliases_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine lines of nested aliases can stand for a thousand million values."""
    monkeypatch.setattr(manifests, "MAX_VALUES", 1000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ManifestError, match=r"f.yaml: more than 1000 values once its aliases \(\*name\) are written"):
        parse_manifests("\n".join(lines), "f.yaml")
    assert len(parse_manifests("\n".join(lines[:2]), "f.yaml")[0]) == 2


def test_an_anchor_may_be_given_again() -> None:
    """YAML allows it; the library's warning must not end a program that makes warnings errors."""
    assert parse_manifests("a: &x 1\nb: &x 2\nc: *x\n") == [{"a": 1, "b": 2, "c": 2}]


@pytest.mark.parametrize("key", ["[a]", "{a: 1}", "\n  - a: "])
def test_a_key_that_is_not_a_word_is_refused_with_its_place(key: str) -> None:
    with pytest.raises(ManifestError, match=r"a key must be text or a number.*line [12]"):
        parse_manifests(f"? {key}\n: 1")
