"""Structural OpenAPI v3 schemas of CustomResourceDefinitions, generated from pydantic models.

A structural schema has no references, no `anyOf`, one type for each node, and no `nullable`. This module translates
what JSON Schema writes differently. `crd` adds the rules about several fields. Only `crd` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import core_schema

Schema = dict[str, Any]
PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
VALIDATIONS = "x-kubernetes-validations"
# Keys that users of the API never see: Podium's hints, and JSON Schema's hints for form generators.
_DROPPED = {"title", "readOnly", "x-says", "x-no-default", "x-others", "$defs"}


class _WithFactories(GenerateJsonSchema):
    """Generator that includes the values of default factories, which a CRD's defaults need."""

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        factory = schema.get("default_factory")
        if factory is None:
            return super().get_default_value(schema)
        made = factory()  # type: ignore[call-arg]
        # In full: the API server checks the rules on a default before it fills in the defaults of its fields.
        return made.model_dump(mode="json", by_alias=True, exclude_none=True) if isinstance(made, BaseModel) else made


def schema_of(model: type[BaseModel], *, defaults: bool) -> Schema:
    """Return the structural schema of `model`.

    Pass `defaults=False` for a status, where a default would look like a reported value.
    """
    made = _json_schema(model, "validation")
    written = _json_schema(model, "serialization")  # includes computed fields; all fields are required
    definitions = {**made.get("$defs", {})}
    for name, definition in written.get("$defs", {}).items():
        definitions.setdefault(name, definition)
        for field, schema in definition.get("properties", {}).items():
            definitions[name].get("properties", {}).setdefault(field, schema)
    for field, schema in written.get("properties", {}).items():
        made["properties"].setdefault(field, schema)
    return _structural(made, definitions, defaults)


def _json_schema(model: type[BaseModel], mode: JsonSchemaMode) -> Schema:
    return model.model_json_schema(by_alias=True, schema_generator=_WithFactories, mode=mode)


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Schema], defaults: bool) -> Schema:
    node = _one_type(node, definitions)
    out: Schema = {}
    if node.get("description"):
        out["description"] = " ".join(str(node["description"]).split())
    for key, value in node.items():
        if key == "properties":
            out[key] = {name: _structural(field, definitions, defaults) for name, field in value.items()}
            out[key].update({name: {PRESERVE: True} for name in node.get("x-others", [])})
        elif key == "items":
            out[key] = _structural(value, definitions, defaults)
        elif key == "additionalProperties":
            _additional(out, value, definitions, defaults)
        elif key == "default":
            if value is not None and defaults and not node.get("x-no-default"):
                out[key] = value
        elif key in {"exclusiveMinimum", "exclusiveMaximum"}:
            out[key.removeprefix("exclusive").lower()] = value
            out[key] = True
        elif key == "pattern" and "x-says" in node:
            # RE2 and Python agree on these patterns, and a sentence helps more than "should match".
            out[VALIDATIONS] = [{"rule": f"self.matches(r'{value}')", "message": node["x-says"]}]
        elif key not in _DROPPED and key != "description":
            out[key] = value
    if out.get("type") == "integer":
        out.setdefault("format", "int64")
    return out


def _one_type(node: Mapping[str, Any], definitions: Mapping[str, Schema]) -> dict[str, Any]:
    """Resolve `$ref`, `anyOf` and `const`; keys beside them take precedence over the resolved ones."""
    merged = dict(node)
    if "$ref" in merged:
        target = definitions[merged.pop("$ref").rsplit("/", 1)[-1]]
        return _one_type({**target, **merged}, definitions)
    if "anyOf" in merged:
        some = [choice for choice in merged.pop("anyOf") if choice.get("type") != "null"]
        if len(some) == 1:
            return _one_type({**some[0], **merged}, definitions)
        return {**merged, _mixed(some): True}
    if "const" in merged:
        merged["enum"] = [merged.pop("const")]
    return merged


def _mixed(choices: list[Schema]) -> Literal["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"]:
    types = sorted(str(choice.get("type")) for choice in choices)
    return "x-kubernetes-int-or-string" if types == ["integer", "string"] else "x-kubernetes-preserve-unknown-fields"


def _additional(out: Schema, value: Any, definitions: Mapping[str, Schema], defaults: bool) -> None:
    if value is True:
        out[PRESERVE] = True  # with or without named properties
    elif value:
        out["additionalProperties"] = _structural(value, definitions, defaults)
