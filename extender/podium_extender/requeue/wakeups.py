"""Wakes refused pods for which room appeared: an annotation on the pod itself makes kube-scheduler try it again within
milliseconds (measured: shared extender-proof, 1d), and no other pod. Run by `main` beside the verbs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sized

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS
from podium_core.placement.node_parser import PlacedPod
from podium_core.placement.victims import Preemptor
from podium_extender.metrics import Metrics
from podium_extender.requeue.backoff_queue import Parked, ParkingLot
from podium_extender.requeue.unschedulable_queue import PodName, WaitingRoom
from podium_extender.state.node_cache import Telemetry

ROOM_ANNOTATION = "podium.dev/retry-scheduling"
MANAGER = "podium-extender"
log = logging.getLogger(__name__)


def follow_pods(telemetry: Telemetry, room: WaitingRoom, parking: ParkingLot | None = None) -> None:
    """A pod that was placed or deleted waits no more. One that waits already when the extender starts was perhaps
    refused by an earlier one, by nobody knows which nodes, or told that nobody goes for it (not trials, for which
    nobody does).
    """
    pods = telemetry.caches["pods"]

    def pod_changed(key: PodName, before: PlacedPod | None, after: PlacedPod | None) -> None:
        if after is None or not after.pending:
            room.leaves(key)
            if parking is not None:
                parking.leaves(key)
        elif after.need.gpus > 0 and not pods.synced:
            room.refused(key, after.need, None, telemetry.clock())
            if parking is not None and after.trial is None:
                preemptor, now = Preemptor(after.need, after.priority), telemetry.clock()
                parking.park(Parked(key, after.uid, preemptor, {}, now, now))

    pods.follow(pod_changed)


def changes_for(somebody: Sized, telemetry: Telemetry) -> asyncio.Event:
    """Set by every change of the caches while somebody waits. Called by `wake_for_ever` and `nudge_for_ever`."""
    changed = asyncio.Event()

    def look() -> None:
        if len(somebody) > 0:  # most often nobody waits, and each binding is a change
            changed.set()

    for cache in telemetry.caches.values():
        cache.subscribe(look)
    return changed


async def wake_for_ever(api: Api, telemetry: Telemetry, room: WaitingRoom, metrics: Metrics) -> None:
    """After every change of the caches while somebody waits: who has room now? Waits for one, or for the budget."""
    changed = changes_for(room, telemetry)
    while True:
        again = room.again_at(telemetry.clock())
        limit = None if again is None else max(0.0, again - telemetry.clock())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), limit)
        changed.clear()
        if len(room) > 0 and telemetry.cold() is None:
            due = room.due(telemetry.views(), telemetry.clock())
            told = await asyncio.gather(*(_wake(api, waiting.pod, metrics) for waiting in due))
            for waiting, over in zip(due, told, strict=True):
                if not over:
                    room.not_woken(waiting, telemetry.clock())


async def _wake(api: Api, pod: PodName, metrics: Metrics) -> bool:
    """False: another try may succeed. Written through the pod's status, which kube-scheduler may write anyway: the
    right to patch pods themselves is the right to change the image of any pod of the cluster.
    """
    namespace, name = pod
    patch = {"metadata": {"annotations": {ROOM_ANNOTATION: f"{time.time():.3f}"}}}
    try:
        await api.patch(PODS, name, namespace, patch, manager=MANAGER, subresource="status")
    except ApiError as error:
        metrics.wakeups.labels("failed").inc()
        log.warning("pod %s/%s could not be woken: %s", namespace, name, error)
        return not (error.transient or error.conflict)
    metrics.wakeups.labels("woken").inc()
    return True
