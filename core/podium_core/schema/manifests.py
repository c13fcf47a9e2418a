"""Reader of manifests that reads YAML as kubectl does.

The CLI and the tests call it. PyYAML reads `1e-4` as text and so does not notice that a min of "1e-4" is a mistake.
kubectl's YAML is neither 1.1 nor 1.2:

- Numbers are those of 1.2 and more (1e-4, 0o17, 017, 1_000).
- `yes` and `on` are true as in 1.1.
- Timestamps remain text.

The result passes through JSON, where 1.0 is 1. An integration test compares this reader with kubectl. JSON is read as
JSON, because objects saved from a cluster can have megabytes. The YAML reader would take hundreds of times as long, and
it does not know surrogate pairs.
"""

from __future__ import annotations

import io
import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode
from ruamel.yaml.resolver import VersionedResolver

Manifest = dict[str, Any]
MAX_VALUES = 10_000_000  # values of a document after its aliases are expanded: a few lines can expand to any number
_TRUE = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"}
_FALSE = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"}


class ManifestError(ValueError):
    """A file that is not YAML, or that holds something other than objects."""

    code = "InvalidManifest"


def read_manifests(paths: Iterable[Path]) -> list[Manifest]:
    """Return all objects of these files, in order. Raises ManifestError with the file and the line."""
    return [manifest for path in paths for manifest in parse_manifests(path.read_text(encoding="utf-8"), str(path))]


def parse_manifests(text: str, name: str = "manifest") -> list[Manifest]:
    """Return all objects of one text; empty documents are skipped."""
    if text.lstrip()[:1] == "{" and isinstance(parsed := _read_json(text), dict):
        return [parsed]
    reader = YAML(typ="safe", pure=True)
    reader.Resolver, reader.Constructor = _Resolver, _Constructor
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # YAML allows it, and so does kubectl
            documents = [_json(document, count(1)) for document in reader.load_all(text) if document is not None]
    except RecursionError as error:
        raise ManifestError(f"{name}: nested too deeply to be a manifest") from error
    except (YAMLError, ValueError) as error:  # ValueError: `!!int x`, thousands of digits, or aliases of aliases
        raise ManifestError(f"{name}: {' '.join(str(error).split())}") from error
    for number, document in enumerate(documents, start=1):
        if not isinstance(document, dict):
            shown = json.dumps(document, default=str)[:60]
            raise ManifestError(f"{name}: document {number} is {shown}, not an object with apiVersion and kind")
    return documents


def dump_manifests(manifests: Iterable[Manifest]) -> str:
    """Return objects as YAML that kubectl and `parse_manifests` read back unchanged."""
    writer = YAML(typ="safe", pure=True)
    writer.Resolver = _Resolver  # quotes the texts that it would read as something else: yes, 1e-4
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.width = 4096  # one line for each word of a command
    stream = io.StringIO()
    writer.dump_all(list(manifests), stream)
    return stream.getvalue()


def flattened(documents: Iterable[Mapping[str, Any]]) -> Iterator[Manifest]:
    """Yield the documents, and the items of lists. Items of a typed list have no kind of their own."""
    for document in documents:
        kind, items = document.get("kind"), document.get("items")
        if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
            yield dict(document)
            continue
        own = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion")}
        yield from ({**own, **item} for item in items if isinstance(item, dict))


def _read_json(text: str) -> Any:
    """Return the parsed JSON; None if it is not JSON: a YAML mapping may start with a brace too."""
    try:
        return json.loads(text, parse_float=_number, parse_constant=_no_json, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> Manifest:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("duplicate key")  # the YAML reader reports which one and where
    return mapping


def _json(value: Any, seen: Iterator[int]) -> Any:
    """Convert keys to JSON's: kubectl turns a key `on` into "true".

    `seen` counts the values. Raises ValueError.
    """
    if next(seen) > MAX_VALUES:
        text = f"more than {MAX_VALUES} values once its aliases (*name) are written out"
        raise ValueError(f"{text}; use fewer aliases, and do not nest them")
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(key): _json(one, seen) for key, one in value.items()}
    return [_json(one, seen) for one in value] if isinstance(value, list) else value


def _bool(_: SafeConstructor, node: ScalarNode) -> bool:
    return str(node.value) in _TRUE


def _int(_: SafeConstructor, node: ScalarNode) -> int:
    text = str(node.value).replace("_", "").lstrip("+")
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if digits[:2].lower() in ("0b", "0o", "0x"):
        return sign * int(digits, 0)
    return sign * int(digits, 8 if digits.startswith("0") else 10)


def _float(_: SafeConstructor, node: ScalarNode) -> float | int:
    return _number(str(node.value).replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))


def _number(text: str) -> float | int:
    value = float(text)
    # JSON has one kind of number: kubectl sends 1.0 as 1
    return int(value) if math.isfinite(value) and value.is_integer() and abs(value) < 1e21 else value


def _null(_: SafeConstructor, __: ScalarNode) -> None:
    return None


_TAG = "tag:yaml.org,2002:"
_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (  # in this order: 017 is an int before it is a float
    ("bool", re.compile(f"^({'|'.join(sorted(_TRUE | _FALSE))})$")),
    ("int", re.compile(r"^[-+]?(0b_*[01][01_]*|0o_*[0-7][0-7_]*|0[0-7_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|[1-9][0-9_]*)$")),
    ("float", re.compile(r"^[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$")),
    ("float", re.compile(r"^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$")),
    ("null", re.compile(r"^(~|null|Null|NULL|)$")),
    ("merge", re.compile(r"^<<$")),
)


class _Resolver(VersionedResolver):
    """Resolver that decides which plain words are not text."""

    @property
    def versioned_resolver(self) -> Mapping[str | None, list[tuple[str, re.Pattern[str]]]]:
        return {None: [], **dict.fromkeys(_FIRST, _TABLE)}


_TABLE = [(_TAG + kind, pattern) for kind, pattern in _WORDS]
_FIRST = ("", *"-+.0123456789tTfFyYnNoO~<")


class _Constructor(SafeConstructor):
    """Constructor of the values of these words; a key that is a list or an object is refused, as by kubectl."""

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> Any:
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise ConstructorError(None, None, "a key must be text or a number", key.start_mark)
        return super().construct_mapping(node, deep=deep)


for _kind, _make in (("bool", _bool), ("int", _int), ("float", _float), ("null", _null)):
    _Constructor.add_constructor(_TAG + _kind, _make)
