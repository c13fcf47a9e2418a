"""Pydantic's validation errors as sentences: the field as written in YAML, the value, and the cure.

`validation` calls it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from podium_core.domain.phrases import count
from podium_core.schema.generation.openapi import INT_OR_STRING, PRESERVE, VALIDATIONS, Schema, schema_of
from podium_core.schema.rules import Refusal

_TYPES = {
    "int": "an integer",
    "float": "a number",
    "string": "a string (in quotes)",
    "bool": "true or false",
    "list": "a list",
    "dict": "a map of fields",
    "model": "a map of fields",
    "datetime": "a time, such as 2026-01-31T12:00:00Z",
    "timezone": "a time with its zone, such as 2026-01-31T12:00:00Z",
    "finite": "a finite number",
}
_LIMITS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than": lambda ctx: f"must be greater than {ctx['gt']:g}",
    "greater_than_equal": lambda ctx: f"must be at least {ctx['ge']:g}",
    "less_than": lambda ctx: f"must be less than {ctx['lt']:g}",
    "less_than_equal": lambda ctx: f"must be at most {ctx['le']:g}",
    "string_too_short": lambda ctx: f"must have at least {count(ctx['min_length'], 'character')}",
    "string_too_long": lambda ctx: f"must have at most {count(ctx['max_length'], 'character')}",
    "too_short": lambda ctx: f"must have at least {count(ctx['min_length'], 'entry', 'entries')}",
    "too_long": lambda ctx: f"must have at most {count(ctx['max_length'], 'entry', 'entries')}",
    "literal_error": lambda ctx: f"must be {ctx['expected']}",
    "enum": lambda ctx: f"must be {ctx['expected']}",
}


def refusals(error: ValidationError, model: type[BaseModel], prefix: str = "") -> tuple[Refusal, ...]:
    """Return one refusal for each wrong field, in the order of the manifest.

    `prefix` is the position of the model in the whole object.
    """
    schema = _schema(model)
    by_field: dict[str, Refusal] = {}
    for one in error.errors(include_url=False):
        node, place = _locate(schema, one["loc"])
        where = f"{prefix}{place}".lstrip(".")
        by_field.setdefault(where, Refusal(_code(one), where, _sentence(one, node)))
    return tuple(by_field.values())


@cache
def _schema(model: type[BaseModel]) -> Schema:
    return schema_of(model, defaults=False)


def _locate(schema: Schema, loc: Sequence[str | int]) -> tuple[Schema, str]:
    """Return the schema of the deepest known field and its position.

    Pydantic adds the names of union members, which are not part of the manifest.
    """
    node, place = schema, ""
    for part in loc:
        if isinstance(part, int):
            node, place = node.get("items", {}), f"{place}[{part}]"
        elif part in node.get("properties", {}):
            node, place = node["properties"][part], f"{place}.{part}"
        elif isinstance(node.get("additionalProperties"), dict):
            node, place = node["additionalProperties"], f"{place}.{part}"
        elif "properties" in node:  # a field that the model does not know
            place = f"{place}.{part}"
        else:
            break
    return node, place


def _code(one: ErrorDetails) -> str:
    return {"missing": "Required", "extra_forbidden": "UnknownField"}.get(one["type"], "InvalidValue")


def _sentence(one: ErrorDetails, node: Schema) -> str:
    kind, given, ctx = one["type"], one["input"], one.get("ctx", {})
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return f"unknown field{_hint(str(one['loc'][-1]), node.get('properties', {}))}"
    if node.get(INT_OR_STRING) and node.get("description"):
        return f"must be an integer from 1 to 10000, or auto, not {_shown(given)}"
    if node.get(PRESERVE) and "type" not in node:
        return f"must be a string, a number or a boolean, not {_shown(given)}"
    if kind == "string_pattern_mismatch":
        says = [rule["message"] for rule in node.get(VALIDATIONS, [])]
        return f"{_shown(given)} is not allowed: {says[0] if says else 'it must match ' + str(ctx.get('pattern'))}"
    if kind in _LIMITS:
        return f"{_LIMITS[kind](ctx)}, not {_shown(given)}"
    wanted = _TYPES.get(kind.split("_")[0])
    return f"must be {wanted}, not {_shown(given)}" if wanted else f"{one['msg']} (given: {_shown(given)})"


def _hint(name: str, known: Iterable[str]) -> str:
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known fields: {', '.join(known)}"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
