"""Takes the CPU requests out of a trial's pod, for `suspension.downsizeCpu`. Pure; used by `pods`.

The pod is made with next to nothing, so as many trials as the GPUs have shares fit on a node, whatever each of them
wants; the agent raises the requests of the one that is at work (pods/resize).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from podium_core.schema.cpu_downsizing import DOWNSIZED_MILLICPUS
from podium_core.schema.quantity import to_thousandths


def park(containers: Iterable[dict[str, Any]]) -> dict[str, int]:
    """By container: the thousandths that were taken from it."""
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
            # raised to its limit the pod could become Guaranteed, and a resize may not change the QoS class
            thousandths -= 1
        if thousandths > DOWNSIZED_MILLICPUS:
            taken[container["name"]] = thousandths
            container["resources"] = {**resources, "requests": {**requests, "cpu": f"{DOWNSIZED_MILLICPUS}m"}}
    return taken
