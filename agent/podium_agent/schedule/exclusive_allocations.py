"""Keeps `podium.dev/gpu-exclusive` true: which GPUs are reserved for urgent pods, from Allocate until the pod is gone.

The device plugin reserves and waits here, the conductor asks what is taken, the reporter shows it. Each reservation is
noted on the node's disk before the kubelet is answered: an agent that starts anew must not let a trial in beside an
urgent pod that it has not heard of yet. The rules are in `exclusive`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict

from podium_agent.notes import Notes
from podium_agent.observe.cgroups import find_leftovers
from podium_agent.observe.pod_resources import KubeletAwayError, gpus_of_pods
from podium_agent.schedule.exclusive_gpus import Reservation, UrgentPod, advance, blocked
from podium_agent.schedule.node_reconciler import View
from podium_agent.settings import AgentSettings
from podium_cluster.watch import WatchCache
from podium_core.placement.needs import EXCLUSIVE_RESOURCE, TRIAL_LABEL, need_of
from podium_core.placement.views import PodNeed
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_core.schema.pod import Pod as PlacementPod

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.2  # between two questions to the kubelet, only while something is reserved


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


class StillTakenError(Exception):
    """The pod is not to start now; the sentence is for its events."""


def parse_pod(payload: Mapping[str, Any]) -> UrgentPod:
    """Any pod of this node: whether it has a GPU of its own is the kubelet's word."""
    pod = _Pod.model_validate(payload)
    leaving = pod.metadata.deletion_timestamp is not None
    over, trial = pod.status.phase in ("Succeeded", "Failed"), bool(pod.metadata.labels.get(TRIAL_LABEL))
    return UrgentPod(pod.metadata.uid, over, leaving, _need(payload), trial)


def _need(payload: Mapping[str, Any]) -> PodNeed | None:
    """Of shares; one that cannot be read counts for none here, as the kubelet's word is enough to place it."""
    try:
        need = need_of(PlacementPod.model_validate(payload))
    except ValueError:
        return None
    return need if need.gpus > 0 and not need.exclusive else None


class Reservations:
    """`pods`: all pods of this node. `changed` wakes the conductor."""

    def __init__(
        self, settings: AgentSettings, pods: WatchCache[UrgentPod], changed: Callable[[], None] = lambda: None
    ) -> None:
        self._settings = settings
        self._pods = pods
        self.changed = changed
        self._notes = Notes(settings.exclusive_dir, _Note, of="GPU")
        self._held = {note.gpu: _of(note) for note in self._notes.all().values()}  # of the agent before this one
        self._asked = False
        self._event = asyncio.Event()
        self._news = asyncio.Event()
        self._view = View()

    @property
    def taken(self) -> Mapping[str, str]:
        """GPU to the pod's namespace and name; empty while the kubelet has not said whose it is."""
        return {uuid: one.name for uuid, one in self._held.items()}

    def reserve(self, uuids: Collection[str]) -> None:
        """From now on no trial is let onto these GPUs, and those that work there are suspended. A pod that had one
        until now is over: else the kubelet would not give it again. With its end the next one's must not end as well.
        """
        self._settle({**self._held, **{uuid: Reservation(uuid, time.time()) for uuid in uuids}})
        self._event.set()

    def heed(self, view: View) -> None:
        """After every look of the conductor."""
        self._view = view
        self._news.set()
        self._news = asyncio.Event()

    async def vacate(self, uuids: Collection[str]) -> None:
        """Until no trial works on these GPUs. Raises StillTakenError when that takes longer than the kubelet waits, and
        when the pod is deleted meanwhile: the kubelet ends it only after this call.
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
                    trouble = blocked(uuids, self._view.taken, self._view.trials, self._view.orders.released)
                    if trouble is None:
                        log.info("GPU %s is free after %.3f s", ", ".join(uuids), time.monotonic() - begin)
                        return
                    code, message = trouble
                    if self._leaving(uuids):
                        raise StillTakenError(f"PodTerminating: it was told to end before its GPU was free; {message}")
                    await news.wait()
        raise StillTakenError(f"{code}: {message} (waited {self._settings.exclusive_seconds:g} s)")

    def _leaving(self, uuids: Collection[str]) -> bool:
        names = {one.pod for uuid in uuids if (one := self._held.get(uuid)) is not None and one.pod is not None}
        return any(pod.leaving for name in names if (pod := self._pods.get(*name)) is not None)

    async def run(self) -> None:
        """Follows the kubelet's word while anything is reserved, at most so often; asks once when the agent starts. Not
        with every event of a pod: a node may have hundreds a second.
        """
        await self._pods.wait_synced()
        while True:
            self._event.clear()
            if self._held or not self._asked:
                await self._look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._event.wait()
            else:
                await self._event.wait()

    async def _look(self) -> None:
        try:
            found = await gpus_of_pods(self._settings.pod_resources_socket, EXCLUSIVE_RESOURCE)
        except KubeletAwayError:
            return  # what is reserved stays so
        self._asked = True
        listed = {uuid: name for name, uuids in found.items() for uuid in uuids}
        pods = {name: pod for name in self._names(listed.values()) if (pod := self._pods.get(*name)) is not None}
        doubtful = {one.uid for one in self._held.values() if one.uid and one.gpu not in listed}
        doubtful |= {pod.uid for pod in pods.values() if pod.ended}
        alive = find_leftovers(self._settings.proc, self._settings.cgroup_root, frozenset(doubtful))
        self._settle(advance(self._held, listed, pods, alive.keys(), time.time()))

    def _names(self, listed: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        return {*listed, *(one.pod for one in self._held.values() if one.pod is not None)}

    def _settle(self, now: Mapping[str, Reservation]) -> None:
        """Note what is new before anyone acts on it, then tell the conductor."""
        before, self._held = self._held, dict(now)
        for uuid, one in now.items():
            if before.get(uuid) != one:
                self._note(one)
                log.info("GPU %s is reserved for %s", uuid, one.name or "a pod that is being admitted")
        for uuid in before.keys() - now.keys():
            self._notes.drop(uuid)
            log.info("GPU %s is given back by %s", uuid, before[uuid].name or "a pod that was never admitted")
        if before != now:
            self.changed()

    def _note(self, one: Reservation) -> None:
        namespace, name = one.pod or ("", "")
        note = _Note(gpu=one.gpu, at=one.at, namespace=namespace, pod=name, uid=one.uid)
        self._notes.write(one.gpu, note, f"GPU {one.gpu} is reserved")


def _of(note: _Note) -> Reservation:
    return Reservation(note.gpu, note.at, (note.namespace, note.pod) if note.pod else None, note.uid)
