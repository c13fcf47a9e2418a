"""Memory in a pod for the GPU memory that `cuda-checkpoint` moves into it: request and limit grow by that size.

GPU memory that is moved becomes memory of the trial's processes. Without a higher limit the kernel would kill them.
Only a request from the beginning keeps other pods from using that memory while the trial runs. Used by `pod_manifest`.
"""

from __future__ import annotations

from typing import Any

from podium_core.schema.job import JobSpec
from podium_core.schema.quantity import to_bytes

METHOD = "cuda-checkpoint"


def moved_bytes(spec: JobSpec) -> int:
    """Return the GPU memory (bytes) of one trial on all of its GPUs; 0 if it is never moved."""
    if METHOD not in spec.suspension.methods or spec.gpus.memory is None:
        return 0
    return to_bytes(spec.gpus.memory) * spec.gpus.per_trial


def add_memory(container: dict[str, Any], more: int) -> None:
    """Add `more` bytes to the container's memory request and limit.

    A missing limit stays missing; where only a limit is given, Kubernetes uses it as the request. Raises ValueError
    for a value that cannot be parsed as a quantity.
    """
    resources = container.setdefault("resources", {})
    requests, limits = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    if "memory" in requests or "memory" not in limits:
        requests["memory"] = str(to_bytes(str(requests.get("memory", 0))) + more)
    if "memory" in limits:
        limits["memory"] = str(to_bytes(str(limits["memory"])) + more)
    resources["requests"] = requests
    if limits:
        resources["limits"] = limits
