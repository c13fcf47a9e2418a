"""Remove the CPU requests of a trial's pod, for `suspension.downsizeCpu`. Pure; used by `pod_manifest`.

The pod is created with almost no CPU request. So as many trials as the GPUs have slots fit on a node, whatever CPU they
request. The agent raises the requests of the trial that holds the GPU (pods/resize).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from podium_core.schema.cpu_downsizing import DOWNSIZED_MILLICPUS
from podium_core.schema.quantity import to_thousandths


def downsize(containers: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Downsize the CPU requests. Return, by container, the millicpus that were taken from it."""
    taken: dict[str, int] = {}
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        limit = limits.get("cpu")
        wanted = requests.get("cpu", limit)
        if wanted is None:
            continue
        thousandths = to_thousandths(str(wanted))
        if limit is not None and to_thousandths(str(limit)) == thousandths:
            # at its limit the pod could become Guaranteed, and a resize may not change the QoS class
            thousandths -= 1
        if thousandths > DOWNSIZED_MILLICPUS:
            taken[container["name"]] = thousandths
            container["resources"] = {**resources, "requests": {**requests, "cpu": f"{DOWNSIZED_MILLICPUS}m"}}
    return taken
