"""What the verbs say of themselves in OpenAPI, written from the models of `wire` alone. FastAPI does not parse the
bodies itself (`bodies` does, with sentences of its own), so it cannot know their models. Used by `app`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, RootModel
from pydantic.json_schema import models_json_schema

from podium_extender.verbs.wire import ExtenderArgs, FilterResult, HostPriorityList, PreemptArgs, PreemptResult, ErrorResponse

_READ: Literal["validation"] = "validation"
_WRITTEN: Literal["serialization"] = "serialization"
_VERBS: Mapping[str, tuple[type[BaseModel], type[BaseModel] | type[RootModel[Any]]]] = {
    "filter": (ExtenderArgs, FilterResult),
    "prioritize": (ExtenderArgs, HostPriorityList),
    "preempt": (PreemptArgs, PreemptResult),
}
_TROUBLES = {
    400: "The body is not the protocol's.",
    413: "The body is too large.",
    503: "The caches are not warm yet, or too many requests are under way.",
}
_REFS, _SCHEMAS = models_json_schema(
    [
        *((asked, _READ) for asked, _ in _VERBS.values()),
        *((said, _WRITTEN) for _, said in _VERBS.values()),
        (ErrorResponse, _WRITTEN),
    ],
    ref_template="#/components/schemas/{model}",
)


class DescribedAPI(FastAPI):
    """FastAPI with the schemas of the bodies in its document."""

    def openapi(self) -> dict[str, Any]:
        document = get_openapi(title=self.title, version=self.version, routes=self.routes)
        return document | {"components": {"schemas": _SCHEMAS["$defs"]}}


def describe_verb(verb: str) -> dict[str, Any]:
    """`openapi_extra` of a verb: its question, its answer, and what else may come."""
    asked, said = _VERBS[verb]
    troubles = {str(status): _content(ErrorResponse, _WRITTEN) | {"description": why} for status, why in _TROUBLES.items()}
    return {
        "requestBody": _content(asked, _READ) | {"required": True},
        "responses": {"200": _content(said, _WRITTEN), **troubles},
    }


def _content(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": _REFS[model, mode]}}}
