"""A reference page of one kind in Markdown: every field with its type, its default and its meaning. Called by `crd`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from podium_core.schema.base import API_VERSION

_LIMITS = (
    ("minimum", "≥ {}"),
    ("maximum", "≤ {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {}"),
    ("maxItems", "at most {}"),
)


def page(kind: str, schema: Mapping[str, Any], *, shorts: tuple[str, ...], namespaced: bool) -> str:
    """The page as it lies in docs/reference."""
    scope = "namespaced" if namespaced else "cluster-scoped"
    lines = [
        "<!-- Generated from the models in core/podium_core/schema by `make generate`: do not edit. -->",
        f"# {kind}",
        "",
        str(schema["description"]),
        "",
        f"`apiVersion: {API_VERSION}`, `kind: {kind}`, {scope}; `kubectl get {shorts[0]}`. **Bold** = required.",
    ]
    for part in ("spec", "status"):
        node = schema["properties"][part]
        lines += ["", f"## {part}", "", str(node["description"]), ""]
        lines += ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [f"| {' | '.join(row)} |" for row in _rows(node, "")]
    rules = list(_rules(schema, ""))
    if rules:
        lines += ["", "## Refused at `kubectl apply`", "", "| where | unless | message |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join(row)} |" for row in rules]
    return "\n".join(lines) + "\n"


def _rows(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str, str]]:
    required = set(node.get("required", []))
    for name, field in node.get("properties", {}).items():
        if "description" not in field:
            continue  # passes unread
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
        return "whole number or text"
    if "type" not in field:
        return "text, number, true or false"
    kind = {"integer": "whole number", "boolean": "true or false", "string": "text"}.get(field["type"], field["type"])
    if field.get("format") == "date-time":
        kind = "time"
    if field["type"] == "array":
        kind = f"list of {_type(field['items'])}"
    if field["type"] == "object" and "additionalProperties" in field:
        kind = f"map to {_type(field['additionalProperties'])}"
    limits = [text.format(field[key]) for key, text in _LIMITS if key in field]
    if field.get("exclusiveMinimum"):
        limits[0] = limits[0].replace("≥", ">")
    return f"{kind} ({', '.join(limits)})" if limits else kind


def _rules(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    for rule in node.get("x-kubernetes-validations", []):
        yield f"`{path or 'object'}`", f"`{_escaped(rule['rule'])}`", _escaped(rule["message"])
    for name, field in node.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        yield from _rules(field, here)
        yield from _rules(field.get("items", {}), f"{here}[]")


def _escaped(text: str) -> str:
    return text.replace("\\|", "|").replace("|", "\\|")
