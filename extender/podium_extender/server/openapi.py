"""The OpenAPI description of the verbs, generated from the models of `wire`.

FastAPI does not parse the bodies (`verbs.wire` does, with its own error messages), so it does not know their models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, RootModel
from pydantic.json_schema import models_json_schema

from podium_extender.verbs.wire import (
    ErrorResponse,
    ExtenderArgs,
    FilterResult,
    HostPriorityList,
    PreemptArgs,
    PreemptResult,
)

_READ: Literal["validation"] = "validation"
_WRITE: Literal["serialization"] = "serialization"
_VERBS: Mapping[str, tuple[type[BaseModel], type[BaseModel] | type[RootModel[Any]]]] = {
    "filter": (ExtenderArgs, FilterResult),
    "prioritize": (ExtenderArgs, HostPriorityList),
    "preempt": (PreemptArgs, PreemptResult),
}
_ERRORS = {
    400: "The body does not follow the protocol.",
    413: "The body is too large.",
    503: "The caches are not filled yet, or too many requests are being processed.",
}
_REFS, _SCHEMAS = models_json_schema(
    [
        *((request, _READ) for request, _ in _VERBS.values()),
        *((response, _WRITE) for _, response in _VERBS.values()),
        (ErrorResponse, _WRITE),
    ],
    ref_template="#/components/schemas/{model}",
)


class DescribedAPI(FastAPI):
    """FastAPI with the schemas of the bodies in its OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        """Return the document."""
        document = get_openapi(title=self.title, version=self.version, routes=self.routes)
        return document | {"components": {"schemas": _SCHEMAS["$defs"]}}


def describe_verb(verb: str) -> dict[str, Any]:
    """Return `openapi_extra` of a verb: its request, its response and its errors."""
    request, response = _VERBS[verb]
    errors = {str(status): _content(ErrorResponse, _WRITE) | {"description": text} for status, text in _ERRORS.items()}
    return {
        "requestBody": _content(request, _READ) | {"required": True},
        "responses": {"200": _content(response, _WRITE), **errors},
    }


def _content(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": _REFS[model, mode]}}}
