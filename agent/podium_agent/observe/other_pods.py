"""Other pods: pods of this node that occupy slots and are not trials, and the pod that the kubelet is allocating for.

Podium neither admits nor suspends them. The node reporter shows them, so that the extender knows how full each GPU is,
and the device plugin packs them. The kubelet does not name the pod that it allocates for. It is the pod on this node
without slots yet; of several, the one seen first, since the kubelet usually keeps that order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from podium_agent.deviceplugin.slots import uuid_of
from podium_agent.observe.pod_resources import KubeletAwayError, PodName, devices_of_pods
from podium_agent.schedule.exclusive_gpus import NodePod
from podium_agent.settings import AgentSettings
from podium_cluster.watch import Key, WatchCache
from podium_core.placement.views import PodNeed

log = logging.getLogger(__name__)
SOON_SECONDS = 0.2  # between two questions to the kubelet while the GPUs of a pod are not known
WATCH_DELAY_SECONDS = 0.5  # by which the kubelet may know a pod before the watch


@dataclass(frozen=True, slots=True)
class LocalOtherPod:
    """Another pod on this node; `gpus`: uuids, sorted."""

    pod: PodName
    uid: str
    need: PodNeed
    gpus: tuple[str, ...]


class OtherPods:
    """The other pods of this node; `pods`: all of its pods."""

    def __init__(self, settings: AgentSettings, pods: WatchCache[NodePod]) -> None:
        self._socket = settings.pod_resources_socket
        self._resource = settings.resource
        self._pods = pods
        self._waiting: dict[PodName, NodePod] = {}  # pods that have or want slots, trials too; first seen first
        self._other_pods: dict[PodName, LocalOtherPod] = {}
        self._event = asyncio.Event()
        self._seen = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        pods.follow(self._pod_changed)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` when another pod has its GPUs, and when it is gone."""
        self._listeners.append(listener)

    def all(self) -> tuple[LocalOtherPod, ...]:
        """Return the other pods, sorted by name."""
        return tuple(self._other_pods[name] for name in sorted(self._other_pods))

    async def find_pod_need(self, size: int) -> PodNeed | None:
        """Return the request of the pod that wants `size` slots now; None if it cannot be determined."""
        with suppress(KubeletAwayError, TimeoutError):
            async with asyncio.timeout(WATCH_DELAY_SECONDS):
                while True:
                    self._seen.clear()
                    have = await self._ask()
                    for name, pod in self._waiting.items():
                        need = pod.need
                        if need is not None and need.gpus - len(have.get(name, ())) >= size:
                            return need
                    await self._seen.wait()
        return None

    async def run(self) -> None:
        """Poll the kubelet while the GPUs of a pod are not known; the kubelet sends no notifications."""
        while True:
            self._event.clear()
            if all(name in self._other_pods for name, pod in self._waiting.items() if not pod.trial):
                await self._event.wait()
            with suppress(KubeletAwayError):
                await self._ask()
            with suppress(TimeoutError):
                async with asyncio.timeout(SOON_SECONDS):
                    await self._event.wait()

    async def _ask(self) -> Mapping[PodName, frozenset[str]]:
        """Return the slots of each pod, by device id."""
        (have,) = await devices_of_pods(self._socket, self._resource)
        for name, pod in self._waiting.items():
            if pod.need is None or pod.trial or name not in have:
                continue
            other_pod = LocalOtherPod(
                name, pod.uid, pod.need, tuple(sorted({uuid_of(device) for device in have[name]}))
            )
            if self._other_pods.get(name) != other_pod:
                self._other_pods[name] = other_pod
                self._tell()
        return have

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def _pod_changed(self, name: Key, before: NodePod | None, after: NodePod | None) -> None:
        wants = after is not None and after.need is not None and not after.ended
        if before is not None and (not wants or after is None or after.uid != before.uid):
            self._waiting.pop(name, None)
            if self._other_pods.pop(name, None) is not None:
                self._tell()
        if after is not None and wants:
            fresh = name not in self._waiting
            self._waiting[name] = after
            if fresh:
                self._seen.set()
                self._event.set()
