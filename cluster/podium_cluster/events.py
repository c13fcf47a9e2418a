"""Kubernetes Events, which `kubectl describe` shows for Podium's decisions."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from podium_cluster import clock
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import EVENTS, Resource

log = logging.getLogger(__name__)
MAX_MESSAGE_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class EventText:
    """Content of an Event."""

    reason: str
    message: str
    kind: Literal["Normal", "Warning"] = "Normal"


async def emit(api: Api, resource: Resource, metadata: Mapping[str, Any], text: EventText, *, component: str) -> None:
    """Record an Event about one object.

    `metadata` needs name, uid, and namespace if the object has one. A failure is only logged, because no decision
    depends on an Event.
    """
    namespace = metadata.get("namespace") or "default"
    now = datetime.fromtimestamp(clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    manifest = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
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
        about = f"{resource.kind} {metadata['name']}"
        log.warning("event %s about %s could not be recorded: %s", text.reason, about, error)
