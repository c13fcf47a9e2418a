"""Parser of the manifest of a GPUQueue, with the rules of its CRD. Pure.

`podium plan`, `podium simulate` and `podium validate` refuse what the API server would refuse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from podium_core.schema.base import API_VERSION, ObjectMeta
from podium_core.schema.gpuqueue import QUEUE_RULES, GPUQueue, GpuQueueSpec, GpuQueueStatus
from podium_core.schema.manifest_parts import parse_part, parse_spec
from podium_core.schema.rules import Refusal, judge
from podium_core.schema.storable import MAX_FOUND, text_refusals

KIND = "GPUQueue"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # as spec.queue of a job


def parse_queue(manifest: Mapping[str, Any]) -> GPUQueue | Refusal:
    """Return the queue, or its first error; its status counts, so a queue of a cluster has its usage."""
    parsed = _parse(manifest)
    if not isinstance(parsed, GPUQueue):
        return parsed[0]
    return next(judge(QUEUE_RULES, parsed), parsed)


def queue_problems(manifest: Mapping[str, Any]) -> tuple[Refusal, ...]:
    """Return all errors of a queue; none if the API server accepts it and jobs can name it."""
    parsed = _parse(manifest)
    if not isinstance(parsed, GPUQueue):
        return parsed
    return (*_name(parsed.metadata.name), *judge(QUEUE_RULES, parsed))


def _parse(manifest: Mapping[str, Any]) -> GPUQueue | tuple[Refusal, ...]:
    """Parse with strict types, as the API server does."""
    refusals = [one for part in ("metadata", "spec") for one in text_refusals(manifest.get(part), part)][:MAX_FOUND]
    version = manifest.get("apiVersion", API_VERSION)
    if version != API_VERSION:
        refusals.append(Refusal("WrongKind", "apiVersion", f"this is {version}: write apiVersion: {API_VERSION}"))
    if refusals:
        return tuple(refusals)
    spec = parse_spec(GpuQueueSpec, manifest, refusals)
    metadata = parse_part(ObjectMeta, manifest, "metadata", refusals)
    if spec is None or metadata is None:
        return tuple(refusals)
    status = parse_part(GpuQueueStatus, manifest, "status", refusals)
    if status is None:
        return tuple(refusals)
    return GPUQueue(metadata=metadata, spec=spec, status=status)


def _name(name: str) -> Iterator[Refusal]:
    """Check that spec.queue of a job can name the queue; the API server accepts longer names, and dots."""
    if not _NAME.fullmatch(name):
        shown = json.dumps(name, ensure_ascii=False)
        message = f"{shown} cannot be named in spec.queue of a job: use at most 63 lower-case letters, digits and -"
        yield Refusal("InvalidValue", "metadata.name", message)
