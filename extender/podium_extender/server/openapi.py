"""The OpenAPI description of the verbs, generated from the models of `wire`.

FastAPI does not parse the bodies (`verbs.wire` does, with its own error messages), so it does not know their models,
and the verbs are plain routes without FastAPI's dependencies, which it does not describe.
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
    """FastAPI whose OpenAPI document describes the verbs and their bodies."""

    def openapi(self) -> dict[str, Any]:
        """Return the document."""
        document = get_openapi(title=self.title, version=self.version, routes=())
        paths = {f"/{verb}": {"post": _describe(verb)} for verb in _VERBS}
        return document | {"paths": paths, "components": {"schemas": _SCHEMAS["$defs"]}}


def _describe(verb: str) -> dict[str, Any]:
    """Return the operation of a verb: its request, its response and its errors."""
    request, response = _VERBS[verb]
    errors = {str(status): _content(ErrorResponse, _WRITE) | {"description": text} for status, text in _ERRORS.items()}
    success = _content(response, _WRITE) | {"description": "The response of kube-scheduler's extender protocol."}
    return {
        "operationId": verb,
        "requestBody": _content(request, _READ) | {"required": True},
        "responses": {"200": success, **errors},
    }


def _content(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": _REFS[model, mode]}}}
