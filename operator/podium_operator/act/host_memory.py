"""Room in a pod for the GPU memory that `cuda-checkpoint` moves into it: its request and its limit grow by as much.

Called by `pods`. What leaves a GPU becomes memory of the trial's own processes, so without room the kernel would kill
it; and only a request from the beginning keeps other pods from taking that room while it works.
"""

from __future__ import annotations

from typing import Any

from podium_core.schema.job import JobSpec
from podium_core.schema.quantity import to_bytes

METHOD = "cuda-checkpoint"


def moved_bytes(spec: JobSpec) -> int:
    """Of one trial on all of its GPUs together; 0 if its memory is never moved. Validation asks for `gpus.memory`."""
    if METHOD not in spec.suspension.methods or spec.gpus.memory is None:
        return 0
    return to_bytes(spec.gpus.memory) * spec.gpus.per_trial


def make_room(container: dict[str, Any], more: int) -> None:
    """`more` bytes on top of what the container asks for. Without a limit there is none to raise; with a limit alone
    Kubernetes takes that for the request. Raises ValueError for what is no quantity.
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
