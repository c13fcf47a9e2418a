"""Reference page of one kind in Markdown: every field with its type, default and description. `crd` calls it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from podium_core.domain.phrases import count
from podium_core.schema.base import API_VERSION

_LIMITS = (  # keyword of the schema, text, what is counted
    ("minimum", "must be greater than or equal to {}", ""),
    ("maximum", "must be less than or equal to {}", ""),
    ("minLength", "must have at least {}", "character"),
    ("maxLength", "must have at most {}", "character"),
    ("minItems", "must have at least {}", "item"),
    ("maxItems", "must have at most {}", "item"),
)


def page(kind: str, schema: Mapping[str, Any], *, shorts: tuple[str, ...], namespaced: bool) -> str:
    """Return the page for docs/reference."""
    scope = "namespaced" if namespaced else "cluster-scoped"
    lines = [
        "<!-- Generated from the models in core/podium_core/schema by `make generate`: do not edit. -->",
        f"# {kind}",
        "",
        str(schema["description"]),
        "",
        f"`apiVersion: {API_VERSION}`, `kind: {kind}`, {scope}, `kubectl get {shorts[0]}`. **Bold**: required.",
    ]
    for part in ("spec", "status"):
        node = schema["properties"][part]
        lines += ["", f"## {part}", "", str(node["description"]), ""]
        lines += ["| Field | Type | Default | Description |", "| --- | --- | --- | --- |"]
        lines += [f"| {' | '.join(row)} |" for row in _rows(node, "")]
    rules = list(_rules(schema, ""))
    if rules:
        lines += [
            "",
            "## Validation rules",
            "",
            "`kubectl apply` refuses an object that breaks one of these rules.",
            "",
        ]
        lines += ["| Field | Rule (CEL) | Message |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join(row)} |" for row in rules]
    return "\n".join(lines) + "\n"


def _rows(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str, str]]:
    required = set(node.get("required", []))
    for name, field in node.get("properties", {}).items():
        if "description" not in field:
            continue  # a field that passes unread
        here = f"{path}{name}"
        default = f"`{json.dumps(field['default'])}`" if field.get("default") not in (None, {}) else ""
        shown = f"**`{here}`**" if name in required else f"`{here}`"
        yield shown, _escaped(_type(field)), default, _escaped(str(field.get("description", "")))
        inner = field.get("items", field)
        mark = "[]." if "items" in field else "."
        yield from _rows(inner, f"{here}{mark}")


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "type" not in field:
        return "string, number or boolean"
    kind = "time (RFC 3339)" if field.get("format") == "date-time" else str(field["type"])
    if field["type"] == "array":
        kind = f"array of {_plural(_type(field['items']))}"
    if field["type"] == "object" and "additionalProperties" in field:
        kind = f"object with values of type {_type(field['additionalProperties'])}"
    return "; ".join((kind, *_limits(field)))


def _plural(kind: str) -> str:
    name, *limits = kind.split("; ")
    return "; each ".join((f"{name}s" if name.isalpha() else name, *limits))


def _limits(field: Mapping[str, Any]) -> Iterator[str]:
    for key, text, noun in _LIMITS:
        if key in field:
            strict = key == "minimum" and field.get("exclusiveMinimum")
            limit = count(field[key], noun) if noun else field[key]
            yield (text.replace(" or equal to", "") if strict else text).format(limit)


def _rules(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    for rule in node.get("x-kubernetes-validations", []):
        yield f"`{path or 'object'}`", f"`{_escaped(rule['rule'])}`", _escaped(rule["message"])
    for name, field in node.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        yield from _rules(field, here)
        yield from _rules(field.get("items", {}), f"{here}[]")


def _escaped(text: str) -> str:
    return text.replace("\\|", "|").replace("|", "\\|")
