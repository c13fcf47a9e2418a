"""Stored objects for the tests of the explanation: every field has a default, so a test names only what it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from podium_core.domain.keys import JobKey
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_core.waiting.objects import StoredObjects

NOW = 1_000_000.0
KEY = JobKey("lab", "job")
ACCEPTED = {"type": "Accepted", "status": "True", "reason": "Valid"}


def at(seconds: float) -> datetime:
    """Return the time `seconds` after the start of the tests' clock."""
    return datetime.fromtimestamp(NOW + seconds, UTC)


def job(
    name: str = "job", created: float = -100.0, spec: Mapping[str, Any] | None = None, **status: Any
) -> HyperParamJob:
    """Return an accepted job; `spec` and `status` replace single fields."""
    given = {
        "objective": {"metric": "loss", "direction": "minimize"},
        "parameters": [{"name": "lr", "type": "float", "min": 0.1, "max": 1.0}],
        "trials": {"max": 8, "maxSteps": 100},
        "template": {"spec": {"containers": [{"name": "train", "image": "example.invalid/train:1"}]}},
    }
    meta = {"name": name, "namespace": "lab", "uid": f"uid-{name}", "creationTimestamp": at(created)}
    stored = {"phase": "Running", "conditions": [ACCEPTED], **status}
    return HyperParamJob.model_validate({"metadata": meta, "spec": {**given, **(spec or {})}, "status": stored})


def trial(number: int, of: str = "job", spec: Mapping[str, Any] | None = None, **status: Any) -> HyperParamTrial:
    """Return a trial; `spec` and `status` replace single fields."""
    name = f"{of}-{number}"
    given = {"job": of, "number": number, "parameters": {"lr": 0.1 + number / 100.0}, **(spec or {})}
    meta = {"name": name, "namespace": "lab", "uid": f"uid-{name}"}
    return HyperParamTrial.model_validate({"metadata": meta, "spec": given, "status": status})


def node(name: str, *gpus: Mapping[str, Any], spec: Mapping[str, Any] | None = None, **status: Any) -> GPUNode:
    """Return a node with these GPUs, each healthy with 4 slots and the UUID `NAME-INDEX` unless it says otherwise."""
    usual = {"health": "Healthy", "slots": 4, "product": "H100", "memoryTotal": 80 << 30}
    each = [{"uuid": f"{name}-{index}", "index": index, **usual, **gpu} for index, gpu in enumerate(gpus)]
    given = {"metadata": {"name": name}, "spec": spec or {}, "status": {"gpus": each, **status}}
    return GPUNode.model_validate(given)


def queue(*names: str) -> list[dict[str, str]]:
    """Return the entries of a run queue."""
    return [{"namespace": "lab", "trial": name, "uid": f"uid-{name}"} for name in names]


def there(name: str, state: str = "Suspended") -> dict[str, Any]:
    """Return a trial on a GPU as its agent reports it."""
    reference = {"namespace": "lab", "trial": name, "uid": f"uid-{name}"}
    return {**reference, "pod": f"{name}-0", "podUID": f"pod-{name}", "state": state, "since": at(-5.0)}


def holder(name: str) -> dict[str, Any]:
    """Return the holder of a GPU."""
    return {"namespace": "lab", "trial": name, "uid": f"uid-{name}", "since": at(-5.0)}


def objects(
    jobs: Sequence[HyperParamJob], trials: Sequence[HyperParamTrial] = (), nodes: Sequence[GPUNode] = ()
) -> StoredObjects:
    """Return the objects as they are stored now."""
    return StoredObjects(tuple(jobs), tuple(trials), tuple(nodes), NOW)
