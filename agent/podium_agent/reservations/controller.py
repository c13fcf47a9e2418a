"""Controller of this node's GPU reservations: which GPUs the reservation pods hold, and their end without trials.

The node reconciler asks which GPUs are reserved, the device plugin what to advertise, and the node reporter shows
them. Nothing is stored: a restarted agent asks the kubelet and the API, and decides and advertises nothing before both
have answered. The rules are in `reserved_gpus`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import Field

from podium_agent.observe.cgroups import find_containers
from podium_agent.observe.pod_resources import DynamicDevice, KubeletAwayError, PodName, all_devices_of_pods
from podium_agent.reservations.dynamic_gpus import DRIVER, DynamicGpus, DynamicPod
from podium_agent.reservations.reserved_gpus import (
    AllocatedDevices,
    ReservationPod,
    ReservedGpu,
    gpus_of_reservations,
    is_evacuated,
    merge_kubelet_answer,
)
from podium_agent.schedule.exclusive_gpus import NodePod
from podium_agent.schedule.node_reconciler import View
from podium_agent.settings import AgentSettings
from podium_cluster.watch import WatchCache
from podium_core.domain.gpu_reservation import ReservationState
from podium_core.schema.base import ObjectMeta, StatusModel

log = logging.getLogger(__name__)
RESERVATION_LABEL = "podium.dev/gpu-reservation"
RESERVED_RESOURCE = "nvidia.com/gpu"
SOON_SECONDS = 0.2  # between two questions to the kubelet while a reservation pod starts or ends
LATE_SECONDS = 5.0  # between two questions otherwise: the kubelet sends no notifications
END_AGAIN_SECONDS = 1.0


class _Container(StatusModel):
    container_id: str = Field("", alias="containerID")


class _PodStatus(StatusModel):
    phase: str = ""
    container_statuses: list[_Container] = Field(default_factory=list)


class _Pod(StatusModel):
    metadata: ObjectMeta
    status: _PodStatus = _PodStatus()


def parse_reservation_pod(payload: Mapping[str, Any]) -> ReservationPod:
    """Parse a reservation pod."""
    pod = _Pod.model_validate(payload)
    terminating = pod.metadata.deletion_timestamp is not None
    name = (pod.metadata.namespace, pod.metadata.name)
    container = next((one.container_id.rpartition("/")[2] for one in pod.status.container_statuses), "")
    return ReservationPod(name, pod.metadata.uid, pod.status.phase in ("Succeeded", "Failed"), terminating, container)


class GpuReservations:
    """GPU reservations of this node; `pods`: its reservation pods, `all_pods`: all of its pods."""

    def __init__(
        self,
        settings: AgentSettings,
        pods: WatchCache[ReservationPod],
        all_pods: WatchCache[NodePod],
        dynamic_gpus: DynamicGpus,
    ) -> None:
        self._settings = settings
        self._dynamic_gpus = dynamic_gpus
        self._pods = pods
        self._all_pods = all_pods
        self._listeners: list[Callable[[], None]] = []
        self.known = asyncio.Event()
        self.allocated: frozenset[str] = frozenset()  # slots that pods have, by device id
        self._holders: Mapping[PodName, AllocatedDevices] = {}  # of whole GPUs
        self._sharers: Mapping[PodName, AllocatedDevices] = {}
        self._gpus: Mapping[str, ReservedGpu] = {}
        self._event = asyncio.Event()
        self._ended: dict[str, float] = {}
        pods.subscribe(self.refresh_soon)

    @property
    def held(self) -> Mapping[str, str]:
        """The reservation pod of each GPU that trials may run on."""
        return {uuid: one.name for uuid, one in self._gpus.items() if one.state is ReservationState.HELD}

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a GPU is gained or lost, or a slot is allocated."""
        self._listeners.append(listener)

    def refresh_soon(self) -> None:
        """Ask the kubelet soon, because pods have changed."""
        self._event.set()

    async def run(self) -> None:
        """Follow the kubelet's answers until cancelled."""
        await self._pods.wait_synced()
        await self._all_pods.wait_synced()
        while True:
            self._event.clear()
            await self.refresh()
            with suppress(TimeoutError):
                async with asyncio.timeout(SOON_SECONDS if self._unsettled() else LATE_SECONDS):
                    await self._event.wait()

    async def refresh(self) -> None:
        """Ask the kubelet once; if it does not answer, the devices remain as they were last known."""
        before = (self.known.is_set(), self.held, self.allocated)
        socket, share = self._settings.pod_resources_socket, self._settings.resource
        try:
            answer = await all_devices_of_pods(socket, RESERVED_RESOURCE, share)
            whole, shares = answer.ids
            whole = {**whole, **await self._dynamic(answer.dynamic)}
            alive = {name: pod.uid for name in self._names(whole, shares) if (pod := self._alive(name)) is not None}
            self._holders = merge_kubelet_answer(self._holders, whole, alive)
            self._sharers = merge_kubelet_answer(self._sharers, shares, alive)
            self.allocated = frozenset(device for one in self._sharers.values() for device in one.devices)
            self.known.set()
        except KubeletAwayError as error:
            log.warning("the reserved GPUs are not updated: %s", error)
        listed = {name: one.devices for name, one in self._holders.items()}
        self._gpus = gpus_of_reservations(listed, self._pods.values())
        if before != (self.known.is_set(), self.held, self.allocated):
            log.info("reserved: %s", ", ".join(f"GPU {gpu} by {name}" for gpu, name in self.held.items()) or "no GPU")
            for listener in self._listeners:
                listener()

    async def _dynamic(self, devices: Mapping[PodName, frozenset[DynamicDevice]]) -> Mapping[PodName, frozenset[str]]:
        """Return the UUIDs of the GPUs that reservation pods have as dynamic resources."""
        pods = []
        for pod in self._pods.values():
            own = frozenset(device for device in devices.get(pod.name, ()) if device.driver == DRIVER)
            if own:
                pods.append(DynamicPod(pod.name, pod.uid, own))
        return await self._dynamic_gpus.uuids_of(pods)

    def _names(self, *answers: Mapping[PodName, frozenset[str]]) -> set[PodName]:
        return {name for named in (*answers, self._holders, self._sharers) for name in named}

    def _alive(self, name: PodName) -> NodePod | None:
        pod = self._all_pods.get(*name)
        return None if pod is None or pod.ended else pod

    def on_view(self, view: View) -> None:
        """Follow the node reconciler: a reservation pod that is to end is killed once its GPU is empty."""
        for one in self._gpus.values():
            reserved = view.reserved if view.reserved is not None else ()
            if one.state is ReservationState.TERMINATING and is_evacuated(
                one.gpu, reserved, view.trials, released=view.run_queues.released
            ):
                self._end(one)

    def _end(self, one: ReservedGpu) -> None:
        """Kill the pod's processes.

        Pid 1 of its container ignores other signals, and the grace period would only be waited for.
        """
        now = time.monotonic()
        if now - self._ended.get(one.uid, -END_AGAIN_SECONDS) < END_AGAIN_SECONDS:
            return
        there = {other.uid for other in self._gpus.values()}
        self._ended = {uid: at for uid, at in self._ended.items() if uid in there} | {one.uid: now}
        log.info("GPU %s is empty: its reservation pod %s is killed", one.gpu, one.name)
        wanted = frozenset({one.container} - {""})
        containers = find_containers(self._settings.proc, self._settings.cgroup_root, wanted)
        for container in containers.values():
            for pid in container.freezer.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _unsettled(self) -> bool:
        """Return whether a pod has no device yet or is terminating, or the kubelet has never answered."""
        there = {one.pod for one in self._gpus.values() if one.state is ReservationState.HELD}
        waits = any(not pod.over and pod.name not in there for pod in self._pods.values())
        return waits or not self.known.is_set()
