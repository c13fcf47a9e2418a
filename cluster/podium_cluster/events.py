"""Kubernetes Events, which `kubectl describe` shows for Podium's decisions.

The name of an Event comes from its content and its time, so that the API server refuses the second one of two equal
Events within SAME_SECONDS: a decision that is tried again, or taken again after a restart, is recorded once. Counting
the repetitions in the Event would need the right to change Events.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from podium_cluster import clock
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import EVENTS, Resource

log = logging.getLogger(__name__)
MAX_MESSAGE_LENGTH = 1024
MAX_OBJECT_NAME = 236  # characters, so that the Event's name has at most 253
SAME_SECONDS = 600  # equal Events of one such interval are one


@dataclass(frozen=True, slots=True)
class EventText:
    """Content of an Event.

    `occurrence` distinguishes Events with equal texts, such as the attempt of a trial; it is not shown.
    """

    reason: str
    message: str
    kind: Literal["Normal", "Warning"] = "Normal"
    occurrence: str = ""


async def emit(api: Api, resource: Resource, metadata: Mapping[str, Any], text: EventText, *, component: str) -> None:
    """Record an Event about one object, unless an equal one was just recorded.

    `metadata` needs name, uid, and namespace if the object has one. A failure is only logged, because no decision
    depends on an Event.
    """
    namespace = metadata.get("namespace") or "default"
    moment = clock.now()
    now = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    manifest = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _name(metadata, text, component, moment), "namespace": namespace},
        "involvedObject": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": metadata["name"],
            "namespace": metadata.get("namespace") or "",
            "uid": metadata.get("uid", ""),
        },
        "reason": text.reason,
        "message": text.message[:MAX_MESSAGE_LENGTH],
        "type": text.kind,
        "source": {"component": component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await api.create(EVENTS, manifest, manager=component)
    except ApiError as error:
        if error.conflict:
            return  # an equal Event exists
        about = f"{resource.kind} {metadata['name']}"
        log.warning("event %s about %s could not be recorded: %s", text.reason, about, error)


def _name(metadata: Mapping[str, Any], text: EventText, component: str, moment: float) -> str:
    """Return the name of an Event, the same for equal ones of one interval."""
    interval = int(moment // SAME_SECONDS)
    about = (metadata.get("uid", ""), component, text.reason, text.message, text.kind, text.occurrence, interval)
    return f"{metadata['name'][:MAX_OBJECT_NAME]}.{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}"
