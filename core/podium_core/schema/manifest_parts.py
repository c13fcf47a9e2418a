"""Parsers of the parts of an object's manifest, which add what is wrong to a list. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from podium_core.schema import error_messages
from podium_core.schema.rules import Refusal

_Model = TypeVar("_Model", bound=BaseModel)


def parse_spec(model: type[_Model], manifest: Mapping[str, Any], refusals: list[Refusal]) -> _Model | None:
    """Parse with strict types, as the API server does: the string "3" is not a number."""
    try:
        return model.model_validate_json(json.dumps(manifest.get("spec") or {}, default=str), strict=True)
    except ValidationError as error:
        refusals += error_messages.refusals(error, model, "spec")
        return None


def parse_part(model: type[_Model], manifest: Mapping[str, Any], part: str, refusals: list[Refusal]) -> _Model | None:
    """Parse the metadata or the status."""
    try:
        return model.model_validate(manifest.get(part) or {})
    except ValidationError as error:
        refusals += error_messages.refusals(error, model, part)
        return None
