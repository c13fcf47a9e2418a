"""UUIDs of reserved GPUs that are dynamic resources (DRA).

The kubelet names such a GPU by driver, pool and device. The driver publishes the UUID in a ResourceSlice of the node.
The agent reads the slices when a reservation pod with an unknown device appears, and keeps the answer for as long as
that pod exists: its device never changes, while the name of a device may mean another GPU later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podium_agent.observe.pod_resources import DynamicDevice, PodName
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import RESOURCE_SLICES
from podium_core.schema.resource_slice import parse_slices, without_outdated

DRIVER = "gpu.nvidia.com"
UUID_ATTRIBUTES = ("uuid", f"{DRIVER}/uuid")  # a name without a domain has the domain of the driver
ASK_AGAIN_SECONDS = 2.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DynamicPod:
    """A reservation pod with dynamic resources."""

    name: PodName
    uid: str
    devices: frozenset[DynamicDevice]


def uuids_of_devices(slices: Iterable[Mapping[str, Any]], node: str) -> Mapping[DynamicDevice, str]:
    """Return the UUIDs of the node's GPUs.

    Raises ValueError for a slice that cannot be parsed.
    """
    own = [spec for spec in parse_slices(slices) if spec.driver == DRIVER and spec.node_name == node]
    uuids: dict[DynamicDevice, str] = {}
    for spec in without_outdated(own):
        for device in spec.devices:
            given = (device.attributes[name].string for name in UUID_ATTRIBUTES if name in device.attributes)
            if uuid := next(given, ""):
                uuids[DynamicDevice(spec.driver, spec.pool.name, device.name)] = uuid
    return uuids


class DynamicGpus:
    """The UUIDs of this node's reserved dynamic resources."""

    def __init__(self, api: Api, node: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._node = node
        self._clock = clock
        self._known: Mapping[str, frozenset[str]] = {}  # by the pod's uid
        self._ask_at = 0.0

    async def uuids_of(self, pods: Iterable[DynamicPod]) -> Mapping[PodName, frozenset[str]]:
        """Return the UUIDs of each pod's GPUs, without pods whose GPUs are not known yet."""
        there = {pod.uid: pod for pod in pods}
        known = {uid: uuids for uid, uuids in self._known.items() if uid in there}
        unknown = [pod for uid, pod in there.items() if uid not in known]
        if unknown and self._clock() >= self._ask_at:
            known |= await self._ask(unknown)
        self._known = known
        return {there[uid].name: uuids for uid, uuids in known.items()}

    async def _ask(self, pods: Iterable[DynamicPod]) -> Mapping[str, frozenset[str]]:
        """Return the UUIDs by uid of the pod, as far as the API server knows them."""
        self._ask_at = self._clock() + ASK_AGAIN_SECONDS
        try:
            answer = await self._api.list(RESOURCE_SLICES, fields=f"spec.nodeName={self._node}")
            uuids = uuids_of_devices(answer["items"], self._node)
        except (ApiError, ValueError) as error:
            log.warning("the UUIDs of the reserved dynamic resources are not known: %s", error)
            return {}
        known: dict[str, frozenset[str]] = {}
        for pod in pods:
            missing = sorted(device.name for device in pod.devices if device not in uuids)
            if missing:
                log.warning(
                    "GPU reservation %s: no ResourceSlice of node %s has a UUID of %s; is its driver running?",
                    "/".join(pod.name),
                    self._node,
                    ", ".join(missing),
                )
                continue
            known[pod.uid] = frozenset(uuids[device] for device in pod.devices)
        return known
