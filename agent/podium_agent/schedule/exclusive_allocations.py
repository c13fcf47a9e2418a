"""State of exclusive GPUs (`podium.dev/gpu-exclusive`) from Allocate until the exclusive pod is gone.

The device plugin allocates and waits here, the node reconciler reads which GPUs are taken, and the node reporter shows
them. Each allocation is noted on the node's disk before the kubelet gets its answer. Otherwise a restarted agent could
run a trial beside an exclusive pod that it does not know yet. The rules are in `exclusive_gpus`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict

from podium_agent.notes import Failed, Notes, ignore
from podium_agent.observe.cgroups import find_remaining_containers
from podium_agent.observe.pod_resources import KubeletAwayError, gpus_of_pods
from podium_agent.schedule.exclusive_gpus import ExclusiveAllocation, NodePod, advance, blocked
from podium_agent.schedule.node_reconciler import View
from podium_agent.settings import AgentSettings
from podium_cluster import clock
from podium_cluster.component.logs import about
from podium_cluster.watch import WatchCache
from podium_core.placement.needs import EXCLUSIVE_RESOURCE, TRIAL_LABEL, need_of
from podium_core.placement.views import PodNeed
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_core.schema.pod import Pod as PlacementPod

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.2  # between two questions to the kubelet while a GPU is allocated


class _PodStatus(StatusModel):
    phase: str = ""


class _Pod(StatusModel):
    metadata: ObjectMeta
    status: _PodStatus = _PodStatus()


class _Note(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    gpu: str
    at: float
    namespace: str = ""
    pod: str = ""
    uid: str = ""


class GpuStillInUseError(Exception):
    """The pod cannot start now; the message goes to its events."""


def parse_pod(payload: Mapping[str, Any]) -> NodePod:
    """Parse any pod of this node; only the kubelet knows whether it has an exclusive GPU."""
    pod = _Pod.model_validate(payload)
    terminating = pod.metadata.deletion_timestamp is not None
    over, trial = pod.status.phase in ("Succeeded", "Failed"), bool(pod.metadata.labels.get(TRIAL_LABEL))
    return NodePod(pod.metadata.uid, over, terminating, _need(payload), trial)


def _need(payload: Mapping[str, Any]) -> PodNeed | None:
    """Return the slots that the pod requests; None if it requests none, or if they cannot be parsed.

    The kubelet's answer is enough to place a pod whose request cannot be parsed.
    """
    try:
        need = need_of(PlacementPod.model_validate(payload))
    except ValueError:
        return None
    return need if need.gpus > 0 and not need.exclusive else None


class ExclusiveAllocations:
    """GPUs of exclusive pods; `pods`: all pods of this node, `changed` wakes the node reconciler.

    `failed` is called for each note that cannot be written.
    """

    def __init__(
        self,
        settings: AgentSettings,
        pods: WatchCache[NodePod],
        changed: Callable[[], None] = lambda: None,
        failed: Failed = ignore,
    ) -> None:
        self._settings = settings
        self._pods = pods
        self.changed = changed
        self._notes = Notes(settings.exclusive_dir, _Note, of="GPU", failed=failed)
        self._held = {note.gpu: _of(note) for note in self._notes.all().values()}  # of the previous agent
        self._asked = False
        self._event = asyncio.Event()
        self._news = asyncio.Event()
        self._view = View()

    @property
    def exclusive_pods(self) -> Mapping[str, str]:
        """The exclusive pod of each GPU, as namespace/name; empty until the kubelet names it."""
        return {uuid: one.name for uuid, one in self._held.items()}

    def reserve(self, uuids: Collection[str]) -> None:
        """Close these GPUs to trials from now on; the trials that run there are suspended.

        An earlier exclusive pod of such a GPU has ended, since the kubelet allocates the GPU again. The late news of
        its end must not end the new allocation.
        """
        self._settle({**self._held, **{uuid: ExclusiveAllocation(uuid, clock.now()) for uuid in uuids}})
        self._event.set()

    def on_view(self, view: View) -> None:
        """Follow the node reconciler: store its view and wake the waiting calls."""
        self._view = view
        self._news.set()
        self._news = asyncio.Event()

    async def vacate(self, uuids: Collection[str]) -> None:
        """Wait until no trial runs on these GPUs.

        Raises GpuStillInUseError if that takes longer than the kubelet waits, or if the pod is deleted meanwhile: the
        kubelet stops it only after this call.
        """
        missing = [uuid for uuid in uuids if uuid not in self._held]
        if missing:
            self.reserve(missing)
        begin = time.monotonic()
        code, message = "", ""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.exclusive_seconds):
                while True:
                    news = self._news
                    trouble = blocked(
                        uuids, self._view.exclusive_pods, self._view.trials, self._view.run_queues.released
                    )
                    if trouble is None:
                        log.info("GPU %s is free after %.3f s", ", ".join(uuids), time.monotonic() - begin)
                        return
                    code, message = trouble
                    if self._terminating(uuids):
                        raise GpuStillInUseError(
                            f"PodTerminating: the pod was deleted before its GPU was free; {message}"
                        )
                    await news.wait()
        raise GpuStillInUseError(f"{code}: {message} (waited {self._settings.exclusive_seconds:g} s)")

    def _terminating(self, uuids: Collection[str]) -> bool:
        names = {one.pod for uuid in uuids if (one := self._held.get(uuid)) is not None and one.pod is not None}
        return any(pod.terminating for name in names if (pod := self._pods.get(*name)) is not None)

    async def run(self) -> None:
        """Poll the kubelet while a GPU is allocated, and once when the agent starts.

        The task does not react to every event of a pod, since a node may have hundreds a second.
        """
        await self._pods.wait_synced()
        while True:
            self._event.clear()
            if self._held or not self._asked:
                await self._refresh()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._event.wait()
            else:
                await self._event.wait()

    async def _refresh(self) -> None:
        try:
            gpus_by_pod = await gpus_of_pods(self._settings.pod_resources_socket, EXCLUSIVE_RESOURCE)
        except KubeletAwayError:
            return  # the allocations remain
        try:
            self._compare(gpus_by_pod)
        except OSError as error:
            log.error("the allocations of GPUs remain as they are, because /proc cannot be read: %s", error)

    def _compare(self, gpus_by_pod: Mapping[tuple[str, str], tuple[str, ...]]) -> None:
        """Take over what the kubelet lists. Raises OSError."""
        self._asked = True
        listed = {uuid: name for name, uuids in gpus_by_pod.items() for uuid in uuids}
        pods = {name: pod for name in self._names(listed.values()) if (pod := self._pods.get(*name)) is not None}
        doubtful = {one.uid for one in self._held.values() if one.uid and one.gpu not in listed}
        doubtful |= {pod.uid for pod in pods.values() if pod.ended}
        alive = find_remaining_containers(self._settings.proc, self._settings.cgroup_root, frozenset(doubtful))
        self._settle(advance(self._held, listed, pods, alive.keys(), clock.now()))

    def _names(self, listed: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        return {*listed, *(one.pod for one in self._held.values() if one.pod is not None)}

    def _settle(self, now: Mapping[str, ExclusiveAllocation]) -> None:
        """Note what is new before it takes effect, then wake the node reconciler."""
        before, self._held = self._held, dict(now)
        for uuid, one in now.items():
            if before.get(uuid) != one:
                self._note(one)
                with about(gpu=uuid, pod=one.name or ""):
                    log.info("GPU %s is allocated to %s", uuid, one.name or "a pod that is being admitted")
        for uuid in before.keys() - now.keys():
            self._notes.drop(uuid)
            with about(gpu=uuid, pod=before[uuid].name or ""):
                log.info("GPU %s is released by %s", uuid, before[uuid].name or "a pod that was never admitted")
        if before != now:
            self.changed()

    def _note(self, one: ExclusiveAllocation) -> None:
        namespace, name = one.pod or ("", "")
        note = _Note(gpu=one.gpu, at=one.at, namespace=namespace, pod=name, uid=one.uid)
        self._notes.write(one.gpu, note, f"GPU {one.gpu} is allocated")


def _of(note: _Note) -> ExclusiveAllocation:
    return ExclusiveAllocation(note.gpu, note.at, (note.namespace, note.pod) if note.pod else None, note.uid)
