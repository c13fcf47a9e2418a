"""Other device plugins that give out this node's GPUs, as the kubelet knows them (mode `dedicated` only).

Podium and another plugin would give the same GPU to two pods. So the agent announces no slots while another plugin
offers GPUs, or while a pod still has one of them. The kubelet sends no notifications, so it is asked every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from podium_agent.deviceplugin.slots import uuid_of
from podium_agent.observe.pod_resources import KubeletAwayError, KubeletDevices, PodName, all_devices
from podium_cluster import clock
from podium_core.placement.announced_gpus import PREFIXES
from podium_core.schema.base import Condition
from podium_core.schema.gpunode import USABLE
from podium_core.schema.template.gpu_resources import is_podium_resource

log = logging.getLogger(__name__)
OTHER_DEVICE_PLUGIN = "OtherDevicePlugin"  # reason of the condition, of the Event and of refused allocations
FIRST_SECONDS = 0.05  # until the first answer: a kubelet that restarts does not wait long for devices
AGAIN_SECONDS = 5.0
# A plugin that restarts, for example with the kubelet, is away for some seconds: GPUs must not be taken meanwhile.
CLEAR_SECONDS = 30.0
CURE = (
    "remove the other plugin from this node and end its pods, or install Podium with gpus.mode=reservations; "
    "`podium drain` moves the trials that run here"
)


@dataclass(frozen=True, slots=True)
class OtherUse:
    """What another plugin has of the node's GPUs: offered devices by resource, and pods that have some."""

    offered: Mapping[str, int]
    pods: tuple[PodName, ...]

    @property
    def found(self) -> bool:
        """Return whether another plugin has any."""
        return bool(self.offered or self.pods)

    @property
    def sentence(self) -> str:
        """Return what was found, and the cure."""
        parts = [f"another device plugin offers {name} ({count})" for name, count in self.offered.items()]
        if self.pods:
            named = ", ".join("/".join(pod) for pod in self.pods[:3])
            more = f" and {len(self.pods) - 3} more" if len(self.pods) > 3 else ""
            parts.append(f"pods have GPUs of another plugin: {named}{more}")
        return f"Podium uses no GPU of this node: {'; '.join(parts)}; {CURE}"


def other_use(devices: KubeletDevices, uuids: Collection[str]) -> OtherUse:
    """Return what other plugins have of the GPUs with these UUIDs. Pure.

    A resource counts if it is known to stand for NVIDIA's GPUs, or if one of its devices has the UUID of a GPU.
    """

    def about_our_gpus(resource: str, ids: Collection[str]) -> bool:
        if is_podium_resource(resource) or not ids:
            return False
        return resource.startswith(PREFIXES) or any(uuid_of(one) in uuids for one in ids)

    offered = {name: len(ids) for name, ids in sorted(devices.offered.items()) if about_our_gpus(name, ids)}
    pods = (pod for pod, held in devices.held.items() if any(about_our_gpus(name, ids) for name, ids in held.items()))
    return OtherUse(offered, tuple(sorted(pods)))


class OtherPlugins:
    """Task that follows the other plugins; `uuids` returns the UUIDs of the node's GPUs."""

    def __init__(self, socket: Path, uuids: Callable[[], Collection[str]]) -> None:
        self._socket = socket
        self._uuids = uuids
        self._listeners: list[Callable[[], None]] = []
        self._last_found = 0.0
        self.known = asyncio.Event()
        self.refusal = ""  # why no GPU of this node is used; empty: they are used
        self._since = clock.now()

    @property
    def condition(self) -> Condition:
        """Return the condition of the GPUNode that says whether Podium uses the node's GPUs."""
        return Condition(
            type=USABLE,
            status="False" if self.refusal else "True",
            reason=OTHER_DEVICE_PLUGIN if self.refusal else "NoOtherDevicePlugin",
            message=self.refusal,
            last_transition_time=datetime.fromtimestamp(self._since, UTC),
        )

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the refusal changes."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Follow the kubelet's answers until cancelled."""
        while True:
            with suppress(KubeletAwayError):
                self.judge(await all_devices(self._socket), time.monotonic())
            await asyncio.sleep(AGAIN_SECONDS if self.known.is_set() else FIRST_SECONDS)

    def judge(self, devices: KubeletDevices, now: float) -> None:
        """Refuse the GPUs at once, and use them again when no other use was seen for a while."""
        uuids, before = self._uuids(), (self.refusal, self.known.is_set())
        use = other_use(devices, uuids)
        if use.found:
            self._last_found, self.refusal = now, use.sentence
        elif self.refusal and now - self._last_found >= CLEAR_SECONDS:
            self.refusal = ""
        if uuids:  # without the driver's answer, devices are judged by the names of the resources only
            self.known.set()
        if bool(self.refusal) != bool(before[0]):
            self._since = clock.now()
        if (self.refusal, self.known.is_set()) != before:
            if self.refusal:
                log.warning("%s: %s", OTHER_DEVICE_PLUGIN, self.refusal)
            elif before[0]:
                log.info("no other device plugin offers GPUs any more: Podium uses those of this node")
            for listener in self._listeners:
                listener()
