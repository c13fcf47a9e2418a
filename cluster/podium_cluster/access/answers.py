"""Reading of the API server's responses: bounded in size, and checked before other code uses them.

A response may come from a proxy, from a server that is about to stop, or from no API server at all. What is not a JSON
object with the fields of a Kubernetes object raises ApiError here, so that callers need no checks of their own.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from typing import Any

from podium_cluster.errors import ANSWER_TOO_LARGE, INVALID_ANSWER, INVALID_JSON, ApiError, error_from_status

Manifest = dict[str, Any]
JsonObject = Mapping[str, Any]
MAX_ANSWER_BYTES = 64 * 2**20
MAX_LINE_BYTES = 16 * 2**20  # etcd takes objects of 1.5 MiB, in a form that is more compact than JSON
MAX_ERROR_BYTES = 2**16
EVENT_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})


async def read_all(chunks: AsyncIterable[bytes], limit: int, what: str) -> bytes:
    """Return the whole body; raise ApiError as soon as it exceeds `limit` bytes."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise ApiError(0, ANSWER_TOO_LARGE, f"{what}: the response is larger than {limit} bytes")
    return bytes(body)


async def read_start(chunks: AsyncIterable[bytes], limit: int) -> bytes:
    """Return the first `limit` bytes of a body."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) >= limit:
            break
    return bytes(body[:limit])


async def read_lines(chunks: AsyncIterable[bytes], limit: int, what: str) -> AsyncGenerator[bytes, None]:
    """Yield the lines that are not blank.

    A last line without an end was cut off and is omitted.
    """
    pending = bytearray()
    async for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            pending += end
            if len(pending) > limit:
                break
            if pending.strip():
                yield bytes(pending)
            pending.clear()
        else:
            pending += rest
        if len(pending) > limit:
            raise ApiError(0, ANSWER_TOO_LARGE, f"{what}: a line is longer than {limit} bytes")


def parse_object(text: bytes, what: str) -> Manifest:
    """Return the JSON object in a response.

    Raises ApiError for anything else, and for a Status of a failure.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:  # for example an error page of a proxy
        start = text[:200].decode(errors="replace")
        raise ApiError(0, INVALID_JSON, f"{what}: the response is not JSON: {start}") from error
    if not isinstance(answer, dict):
        raise _invalid(what, f"a JSON object was expected, not {type(answer).__name__}")
    if answer.get("kind") == "Status" and answer.get("status") == "Failure":
        raise error_from_status(_code(answer), answer)
    return answer


def check_object(answer: Any, what: str) -> Manifest:
    """Return a Kubernetes object if it has a name and a version, else raise ApiError."""
    metadata = _metadata(answer, what)
    for field in ("name", "resourceVersion"):
        _text(metadata, field, what)
    return answer  # type: ignore[no-any-return]


def check_list(answer: Any, what: str) -> Manifest:
    """Return a list object if all of it can be used, else raise ApiError.

    An item without a name makes the whole list invalid: a list from which items are missing looks like deletions.
    """
    metadata = _metadata(answer, what)
    _text(metadata, "resourceVersion", what)
    after = metadata.get("continue") or ""
    if not isinstance(after, str):
        raise _invalid(what, "metadata.continue is not a string")
    items = answer.get("items", "missing")
    if items is None:
        items = []
    if not isinstance(items, list):
        raise _invalid(what, "items is not a list")
    for item in items:
        check_item(item, what)
    return answer | {"items": items}  # type: ignore[no-any-return]


def check_item(item: Any, what: str) -> None:
    """Raise ApiError if an object of a list or an event has no name."""
    metadata = _metadata(item, what)
    _text(metadata, "name", what)
    if not isinstance(metadata.get("namespace", ""), str) or not isinstance(metadata.get("resourceVersion", ""), str):
        raise _invalid(what, "metadata.namespace or metadata.resourceVersion is not a string")


def check_event(event: Any, what: str) -> tuple[str, Manifest]:
    """Return the type and the object of an event of a watch.

    Raises ApiError for an invalid event and for the type ERROR.
    """
    known = isinstance(event, dict) and isinstance(event.get("type"), str) and event["type"] in EVENT_TYPES
    if not known or not isinstance(event.get("object"), dict):
        raise _invalid(what, f"an event needs a type and an object: {reprlib.repr(event)}")
    kind, payload = event["type"], event["object"]
    if kind == "ERROR":
        raise error_from_status(_code(payload), payload)
    if kind == "BOOKMARK":
        _text(_metadata(payload, what), "resourceVersion", what)
    else:
        check_item(payload, what)
    return kind, payload


def _metadata(answer: Any, what: str) -> JsonObject:
    metadata = answer.get("metadata") if isinstance(answer, dict) else None
    if not isinstance(metadata, dict):
        raise _invalid(what, f"the object has no metadata: {reprlib.repr(answer)}")
    return metadata


def _text(metadata: JsonObject, field: str, what: str) -> None:
    if not isinstance(metadata.get(field), str) or not metadata[field]:
        raise _invalid(what, f"metadata.{field} is missing")


def _code(status: JsonObject) -> int:
    code = status.get("code")
    return code if isinstance(code, int) and 400 <= code <= 599 else 0


def _invalid(what: str, problem: str) -> ApiError:
    return ApiError(0, INVALID_ANSWER, f"{what}: {problem}")
