"""Pods of this node that have shares of its GPUs and are no trials: which GPUs they have, and which one it is that the
kubelet asks shares for.

Nobody lets them in or suspends them. The reporter shows them, so that the extender knows which GPU of a node is how
full; the device plugin packs them. The kubelet does not say for whom it asks: it is the pod on this node that has none
yet, and the first that was seen where there are several, which it usually takes up in that order too.
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
SIGHT_SECONDS = 0.5  # that the kubelet may be ahead of our watch with a pod


@dataclass(frozen=True, slots=True)
class LocalOtherPod:
    """`gpus`: uuids, sorted."""

    pod: PodName
    uid: str
    need: PodNeed
    gpus: tuple[str, ...]


class OtherPods:
    """`pods`: all pods of this node."""

    def __init__(self, settings: AgentSettings, pods: WatchCache[NodePod]) -> None:
        self._socket = settings.pod_resources_socket
        self._resource = settings.resource
        self._pods = pods
        self._waiting: dict[PodName, NodePod] = {}  # have or want shares, trials too; in the order of sight
        self._other_pods: dict[PodName, LocalOtherPod] = {}
        self._event = asyncio.Event()
        self._seen = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        pods.follow(self._pod_changed)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call it when a guest has its GPUs, and when it is gone."""
        self._listeners.append(listener)

    def all(self) -> tuple[LocalOtherPod, ...]:
        return tuple(self._other_pods[name] for name in sorted(self._other_pods))

    async def asker(self, size: int) -> PodNeed | None:
        """The need of the pod that wants so many shares now; None: it cannot be told."""
        with suppress(KubeletAwayError, TimeoutError):
            async with asyncio.timeout(SIGHT_SECONDS):
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
        """Asks the kubelet while the GPUs of a pod are not known. It tells nobody of its own accord."""
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
        """Shares that each pod has, by device id."""
        (have,) = await devices_of_pods(self._socket, self._resource)
        for name, pod in self._waiting.items():
            if pod.need is None or pod.trial or name not in have:
                continue
            found = LocalOtherPod(name, pod.uid, pod.need, tuple(sorted({uuid_of(device) for device in have[name]})))
            if self._other_pods.get(name) != found:
                self._other_pods[name] = found
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
