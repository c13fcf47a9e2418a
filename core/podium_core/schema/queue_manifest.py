"""Parser of the manifest of a GPUQueue, with the rules of its CRD. Pure.

`podium plan` and `podium simulate` read files of queues with it, and refuse what the API server would refuse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from podium_core.schema import error_messages
from podium_core.schema.base import API_VERSION, ObjectMeta
from podium_core.schema.gpuqueue import QUEUE_RULES, GPUQueue, GpuQueueSpec, GpuQueueStatus
from podium_core.schema.rules import Refusal, judge
from podium_core.schema.storable import MAX_FOUND, text_refusals

KIND = "GPUQueue"


def parse_queue(manifest: Mapping[str, Any]) -> GPUQueue | Refusal:
    """Return the queue, or its first error; its status counts, so a queue of a cluster has its usage."""
    refusals = [one for part in ("metadata", "spec") for one in text_refusals(manifest.get(part), part)][:MAX_FOUND]
    version = manifest.get("apiVersion", API_VERSION)
    if version != API_VERSION:
        refusals.append(Refusal("WrongKind", "apiVersion", f"this is {version}: write apiVersion: {API_VERSION}"))
    if refusals:
        return refusals[0]
    try:
        spec = GpuQueueSpec.model_validate_json(json.dumps(manifest.get("spec") or {}, default=str), strict=True)
    except ValidationError as error:
        return error_messages.refusals(error, GpuQueueSpec, "spec")[0]
    try:
        metadata = ObjectMeta.model_validate(manifest.get("metadata") or {})
    except ValidationError as error:
        return error_messages.refusals(error, ObjectMeta, "metadata")[0]
    try:
        status = GpuQueueStatus.model_validate(manifest.get("status") or {})
    except ValidationError as error:
        return error_messages.refusals(error, GpuQueueStatus, "status")[0]
    queue = GPUQueue(metadata=metadata, spec=spec, status=status)
    return next(judge(QUEUE_RULES, queue), queue)
