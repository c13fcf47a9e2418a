"""Kubernetes Events, which `kubectl describe` shows for Podium's decisions."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import EVENTS, Resource

log = logging.getLogger(__name__)
MAX_MESSAGE_LENGTH = 1024


async def emit(
    api: Api,
    resource: Resource,
    metadata: Mapping[str, Any],
    *,
    reason: str,
    message: str,
    component: str,
    kind: Literal["Normal", "Warning"] = "Normal",
) -> None:
    """Record an Event about one object.

    `metadata` needs name, uid, and namespace if the object has one. A failure is only logged, because no decision
    depends on an Event.
    """
    namespace = metadata.get("namespace") or "default"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
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
        "reason": reason,
        "message": message[:MAX_MESSAGE_LENGTH],
        "type": kind,
        "source": {"component": component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await api.create(EVENTS, manifest, manager=component)
    except ApiError as error:
        log.warning("event %s about %s %s could not be recorded: %s", reason, resource.kind, metadata["name"], error)
