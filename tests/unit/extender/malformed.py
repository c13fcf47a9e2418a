"""Malformed bodies: recorded bodies with changed parts, truncated ones, and bodies that are not JSON.

test_malformed uses a few hundred, benchmarks/extender/bench_malformed.py 10,000.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message

GOLDEN = Path(__file__).parents[2] / "golden" / "extender"
VERBS = ("filter", "prioritize", "preempt")
ODD: Sequence[Any] = (
    None, True, 0, -1, 1e308, 10**30, "", "\x00", "\ud800", "podium.dev/gpu", "9" * 400, "1e999999", "-0", "١", [], {},
    [None], {"": None}, [[[[]]]], {"metadata": None}, {"name": {}}, "NaN", 0.5, "½", "a" * 5000,
)  # fmt: skip
NOISE = (b"", b"{", b"[]", b"null", b"\xff\xfe", b'"x"', b"NaN", b"1e999999", b"[" * 5000, b'{"Pod":' * 2000)
# where a slip would do most harm
ANNOTATIONS = ("podium.dev/gpu-memory", "podium.dev/gpu-products", "podium.dev/gpu-exclusive")


def recorded() -> list[tuple[str, Any]]:
    """Return verb and body of each request that kube-scheduler really sent."""
    found = [json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*-*.json"))]
    return [(entry["verb"], entry["request"]) for entry in found]


def malformed(chance: random.Random, true: Sequence[tuple[str, Any]]) -> tuple[str, bytes]:
    """Return a verb and a body; sometimes the verb is another one than the body's."""
    verb, body = chance.choice(true)
    if chance.random() < 0.1:
        verb = chance.choice(VERBS)
    way = chance.random()
    if way < 0.05:
        return verb, chance.choice(NOISE)
    changed = json.loads(json.dumps(body))
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        _spoil(chance, changed)
    if way < 0.3:
        pod = changed.get("Pod") if isinstance(changed, dict) else None
        meta = pod.get("metadata") if isinstance(pod, dict) else None
        if isinstance(meta, dict):
            meta["annotations"] = {name: chance.choice(ODD) for name in ANNOTATIONS}
    text = json.dumps(changed).encode()
    return verb, text[: chance.randrange(len(text))] if way > 0.95 else text


def _spoil(chance: random.Random, body: Any) -> None:
    """Replace, delete or duplicate one value anywhere in the body."""
    places = list(_places(body))
    if not places:
        return
    holder, key = chance.choice(places)
    if isinstance(holder, dict) and chance.random() < 0.2:
        del holder[key]
    elif isinstance(holder, list) and chance.random() < 0.2:
        holder.append(deepcopy(holder[key]))
    else:
        holder[key] = deepcopy(chance.choice(ODD))


def _places(value: Any) -> Any:
    """Yield each (container, key) below `value`."""
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from _places(inner)


async def send(app: ASGIApp, verb: str, body: bytes) -> tuple[int, bytes]:
    """Return status and body of the response, without an HTTP client; an exception of the application is raised."""
    status = 0
    answer_body = b""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def answered(message: Message) -> None:
        nonlocal status, answer_body
        status = message.get("status", status)
        answer_body += message.get("body", b"")

    scope = {"type": "http", "method": "POST", "path": f"/{verb}", "raw_path": b"", "query_string": b"", "headers": []}
    await app(scope, receive, answered)
    return status, answer_body


def protocol_error(verb: str, status: int, answer_body: bytes) -> str | None:
    """Return what the scheduler could not understand in a response, or None."""
    if status not in (200, 400):
        return f"status {status}"
    answer = json.loads(answer_body)
    if status == 400:
        return None if answer.get("Error") else "refused without a message"
    if verb == "prioritize":
        whole = all(isinstance(row["Host"], str) and 0 <= row["Score"] <= 10 for row in answer)
        return None if whole else "an invalid score"
    fields = {"filter": "FailedNodes", "preempt": "NodeNameToMetaVictims"}
    return None if isinstance(answer[fields[verb]], dict) else f"no {fields[verb]}"
