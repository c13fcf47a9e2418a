"""Reads manifests as kubectl reads them. PyYAML would not: it takes `1e-4` for text, and a min of "1e-4" for a mistake.

kubectl's YAML is neither 1.1 nor 1.2: numbers as in 1.2 and then some (1e-4, 0o17, 017, 1_000), yes and on are true as
in 1.1, a moment in time stays text. Then it goes through JSON, where 1.0 is 1. An integration test holds this reader
against kubectl. Used by the CLI and by the tests.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver

Manifest = dict[str, Any]
_TRUE = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"}
_FALSE = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"}


class ManifestError(ValueError):
    """A file that is no YAML, or holds something else than objects."""

    code = "BadManifest"


def read_manifests(paths: Iterable[Path]) -> list[Manifest]:
    """All objects in these files, in order; JSON is YAML. Raises ManifestError, which names the file and the line."""
    return [manifest for path in paths for manifest in parse_manifests(path.read_text(encoding="utf-8"), str(path))]


def parse_manifests(text: str, name: str = "manifest") -> list[Manifest]:
    """All objects in one text; empty documents are skipped."""
    reader = YAML(typ="safe", pure=True)
    reader.Resolver, reader.Constructor = _Resolver, _Constructor
    try:
        documents = list(reader.load_all(text))
    except YAMLError as error:
        raise ManifestError(f"{name}: {' '.join(str(error).split())}") from error
    found = [_json(document) for document in documents if document is not None]
    for number, document in enumerate(found, start=1):
        if not isinstance(document, dict):
            shown = json.dumps(document, default=str)[:60]
            raise ManifestError(f"{name}: document {number} is {shown}, not an object with apiVersion and kind")
    return found


def _json(value: Any) -> Any:
    """Keys as JSON has them: kubectl makes a key `on` the text "true"."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(key): _json(one) for key, one in value.items()}
    return [_json(one) for one in value] if isinstance(value, list) else value


def _bool(_: SafeConstructor, node: ScalarNode) -> bool:
    return str(node.value) in _TRUE


def _int(_: SafeConstructor, node: ScalarNode) -> int:
    text = str(node.value).replace("_", "").lstrip("+")
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if digits[:2].lower() in ("0b", "0o", "0x"):
        return sign * int(digits, 0)
    return sign * int(digits, 8 if digits.startswith("0") else 10)


def _float(_: SafeConstructor, node: ScalarNode) -> float | int:
    value = float(str(node.value).replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    # JSON has one kind of number: kubectl sends 1.0 as 1
    return int(value) if math.isfinite(value) and value.is_integer() and abs(value) < 1e21 else value


def _null(_: SafeConstructor, __: ScalarNode) -> None:
    return None


_TAG = "tag:yaml.org,2002:"
_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (  # in this order: 017 is an int before it is a float
    ("bool", re.compile(f"^({'|'.join(sorted(_TRUE | _FALSE))})$")),
    ("int", re.compile(r"^[-+]?(0b[01_]+|0o[0-7_]+|0[0-7_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*)$")),
    ("float", re.compile(r"^[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$")),
    ("float", re.compile(r"^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$")),
    ("null", re.compile(r"^(~|null|Null|NULL|)$")),
    ("merge", re.compile(r"^<<$")),
)


class _Resolver(VersionedResolver):
    """Which plain words are not text."""

    @property
    def versioned_resolver(self) -> Mapping[str | None, list[tuple[str, re.Pattern[str]]]]:
        return {None: [], **dict.fromkeys(_FIRST, _TABLE)}


_TABLE = [(_TAG + kind, pattern) for kind, pattern in _WORDS]
_FIRST = ("", *"-+.0123456789tTfFyYnNoO~<")


class _Constructor(SafeConstructor):
    """What they are then."""


for _kind, _make in (("bool", _bool), ("int", _int), ("float", _float), ("null", _null)):
    _Constructor.add_constructor(_TAG + _kind, _make)
